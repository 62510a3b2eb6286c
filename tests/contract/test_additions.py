"""What CONTRIBUTING.md says of code from outside: one file, which the recipe names, and a run has it.

Each is a module of ``contract/additions`` and keeps the contract of its kind.
"""

from __future__ import annotations

import configparser
import json
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

from contract.additions.launchers import Named
from contract.additions.tasks import UNSEEN, informed
from contract.conftest import document, run_recipe
from trainwright.artifact.shards import TokenDataset
from trainwright.launch.launchers import launcher, wait
from trainwright.model.build import build_network
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_exporter import ExporterContract
from trainwright.testing.contract_family import FamilyContract
from trainwright.testing.contract_filter import FilterContract
from trainwright.testing.contract_launcher import PATIENCE_S, LauncherContract, script
from trainwright.testing.contract_optimizer import OptimizerContract
from trainwright.testing.contract_schedule import ScheduleContract
from trainwright.testing.contract_source import SourceContract
from trainwright.testing.contract_task import TaskContract

RECIPE = """
name: newcomers
task: {name: "contract.additions.tasks:TASK"}
model: {family: "contract.additions.families:FAMILY", layers: 2, width: 32, heads: 2, context_tokens: 64}
data:
  sources: [{kind: "contract.additions.sources:Ini", paths: [corpus.ini], key: body}]
  clean: {filters: ["contract.additions.filters:unfinished"]}
  tokenizer: {vocabulary: 320}
train:
  sequence_tokens: 32
  batch_tokens: 128
  duration: 3 steps
  precision: fp32
  optimizer: {name: "contract.additions.optimizers:momentum", lr: 1e-2}
  schedule: {name: "contract.additions.schedules:square_root", warmup: 1 steps}
  exec: {compile: false, threads: 1, micro_batch: 2, log_every_steps: 1}
evaluate: {splits: [test]}
export: {formats: [huggingface, "contract.additions.exporters:Pair"]}
serve: {engine: "fixtures.parrot_engine:open_engine", demo: {prompt: "once", max_tokens: 1}}
"""
UNFINISHED, DOCUMENTS = 7, 120


class TestIni(SourceContract):
    def keys(self):
        return {"kind": "contract.additions.sources:Ini", "key": "body"}

    def write(self, folder):
        (folder / "a.ini").write_text("[1]\nbody = one\n[2]\nbody = two, and half\n  of it\n", encoding="utf-8")
        return ["one", "two, and half\nof it"]


class TestUnfinished(FilterContract):
    filter = "contract.additions.filters:unfinished"
    kept = ("all is done",)
    dropped = ("TODO: the rest",)


class TestInformed(TaskContract):
    @pytest.fixture(autouse=True)
    def _dataset(self, tmp_path):
        texts = [f"{number} words and {number * number} more of them" for number in range(40)]
        self.dataset = TokenDataset.open(make_dataset(tmp_path, {"train": texts}).path)
        self.recipe = Recipe.model_validate(
            {
                "name": "tiny",
                "model": {"layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
                "data": {"sources": [{"kind": "text", "paths": ["corpus.txt"]}]},
                "train": {"sequence_tokens": 12, "batch_tokens": 24},
            }
        )

    def make_task(self):
        return informed(self.recipe, self.dataset)

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        network = build_network(self.recipe.model_spec(vocabulary=self.dataset.vocabulary), dtype=torch.float64)
        network.initialise(1)
        return network.to(torch.float64)

    def test_what_has_hardly_any_context_counts_for_nothing(self, task, batch):
        sequences, tokens = batch["tokens"].shape
        assert int(task.weight(batch)) == sequences * (tokens - 1 - UNSEEN)


class TestMomentum(OptimizerContract):
    optimizer = "contract.additions.optimizers:momentum"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.3}


class TestSquareRoot(ScheduleContract):
    schedule = "contract.additions.schedules:square_root"


class TestNarrow(FamilyContract):
    family = "contract.additions.families:FAMILY"


class TestPair(ExporterContract):
    exporter = "contract.additions.exporters:Pair"


@pytest.mark.slow
class TestNamed(LauncherContract):
    def make_launcher(self, folder):
        return Named(folder)


def test_a_launcher_is_a_class(tmp_path):
    place = launcher("contract.additions.launchers:Named", root=tmp_path)
    job_id = place.submit(script("show=PLACE"))
    assert wait(place, job_id, timeout_s=PATIENCE_S).state == "succeeded"
    assert "PLACE is here" in place.log(job_id).read_text(encoding="utf-8")


@pytest.fixture
def plan(tmp_path, run_module):
    """``plan(argument, ...)``: the JSON of a plan on a cluster."""
    return lambda *arguments: json.loads(
        run_module("trainwright", "plan", "--tokens", "1B", *arguments, "--json", folder=tmp_path)
    )["plan"]


def test_a_link_is_a_rate(plan):
    cluster = plan("--model", "gpt2", "--on", "2x1xh100-sxm", "--scale-out", "100Gb/s")["cluster"]
    assert (cluster["scale_out"]["bytes_per_s"], cluster["origins"]["scale_out"]) == (100e9 / 8, "given")


def test_a_price_is_an_amount(plan):
    estimate = plan("--model", "gpt2", "--on", "h100-sxm", "--price", "36")["estimate"]
    assert estimate["usd"]["mid"] == pytest.approx(estimate["seconds"]["mid"] / 100)


def test_a_model_shape_is_a_configuration(plan, tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    parameters = plan("--model", "config.json", "--on", "t4")["parameters"]
    assert sum(parameters.values()) == 2 * 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe above, from the command line; documents are stories, some of them unfinished."""
    root = tmp_path_factory.mktemp("newcomers")
    (root / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    sections = configparser.ConfigParser(interpolation=None)
    for number in range(DOCUMENTS):
        end = "TODO" if number < UNFINISHED else "the end"
        body = f"once there were {number} {'and more ' * (number % 9)}things\n{end}"
        sections[str(number)] = {"title": str(number), "body": body}
    with (root / "corpus.ini").open("w", encoding="utf-8") as file:
        sections.write(file)
    return run_recipe(root)


@pytest.mark.slow
def test_a_source_is_a_class(workspace):
    (source,) = document(workspace, "data-*/report.json")["sources"]
    assert source["source"] == "contract.additions.sources:Ini: corpus.ini"
    assert source["read"]["documents"] == DOCUMENTS


@pytest.mark.slow
def test_a_filter_is_a_function(workspace):
    (source,) = document(workspace, "data-*/report.json")["sources"]
    assert {reason: count["documents"] for reason, count in source["dropped"].items()} == {"unfinished": UNFINISHED}


@pytest.mark.slow
def test_a_task_is_a_kind_with_what_keeps_the_protocol(workspace):
    measured = document(workspace, "evaluate-*/evaluation.json")["splits"]["test"]
    bits, loss = (measured["metrics"][name] for name in ("bits_per_token", "loss"))
    assert bits == {"value": pytest.approx(loss["value"] / math.log(2)), "unit": "bits/token"}


@pytest.mark.slow
def test_an_optimizer_is_a_function(workspace):
    (path,) = workspace.glob("train-*/checkpoints/*/optimizer.safetensors")
    assert {name.rpartition(".")[2] for name in load_file(path)} == {"momentum_buffer"}


@pytest.mark.slow
def test_a_model_family_is_a_value(workspace):
    spec = document(workspace, "train-*/model.json")
    assert (spec["family"], spec["ffn_width"], spec["tied"]) == ("contract.additions.families:FAMILY", 64, True)
    (bundle,) = workspace.glob("export-*/huggingface/model.safetensors")
    assert "newcomer.embedding" in load_file(bundle)


@pytest.mark.slow
def test_an_exporter_is_a_class(workspace):
    assert document(workspace, "export-*/contract.additions.exporters.Pair/shape.json")["width"] == 32
    (weights,) = workspace.glob("export-*/contract.additions.exporters.Pair/weights.safetensors")
    (trained,) = workspace.glob("train-*/model.safetensors")
    stored, kept = load_file(weights), load_file(trained)
    assert stored.keys() == kept.keys() and all(torch.equal(stored[name], kept[name]) for name in kept)


@pytest.mark.slow
def test_a_schedule_is_a_function(workspace):
    (log,) = workspace.glob("train-*/events.jsonl")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rates = [event["value"] for event in events if event.get("name") == "train/lr"]
    assert rates == pytest.approx([0.01, 0.01, 0.01 * (1 - 0.5**0.5)])


@pytest.mark.slow
def test_a_serving_engine_is_a_function(workspace):
    (choice,) = document(workspace, "serve-*/answer.json")["response"]["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["text"], "one token"
    assert "once".startswith(choice["text"]), "a parrot repeats the prompt"
