"""Plug-ins with keys of their own in a recipe: they arrive typed, count in the addresses, and are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from safetensors.torch import load_file

from contract.conftest import document, run_recipe
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeErrors
from trainwright.hardware.machine.shared import HOME
from trainwright.pipeline.graph import STAGES
from trainwright.pipeline.runner import find
from trainwright.spec.recipe import Recipe
from trainwright.testing.contract_exporter import ExporterContract
from trainwright.testing.contract_filter import FilterContract
from trainwright.testing.contract_optimizer import OptimizerContract
from trainwright.testing.contract_schedule import ScheduleContract

HERE = "contract.additions.with_keys"
RECIPE = f"""
name: keys
task: {{name: "{HERE}:TASK", unseen: 5}}
model: {{layers: 2, width: 32, heads: 2, context_tokens: 64}}
data:
  sources: [{{kind: text, paths: [corpus.txt]}}]
  clean: {{filters: [{{name: "{HERE}:word", word: seven}}, {{name: few-letters, min_ratio: 0.1}}]}}
  tokenizer: {{vocabulary: 320}}
train:
  sequence_tokens: 32
  batch_tokens: 128
  duration: 3 steps
  precision: fp32
  optimizer: {{name: "{HERE}:heavy", lr: 1e-2, momentum: 0.25}}
  schedule: {{name: "{HERE}:power", warmup: 1 steps, power: 2}}
  exec: {{compile: false, threads: 1, micro_batch: 2, log_every_steps: 1}}
evaluate: {{splits: [test]}}
export: {{formats: [huggingface, {{name: "{HERE}:Noted", note: mine}}]}}
serve: {{engine: {{name: "{HERE}:forgetful", memory_tokens: 48}}, demo: {{prompt: "once", max_tokens: 1}}}}
"""
DOCUMENTS = 120
TRAINED = {"train", "evaluate", "audit", "export", "serve"}


class TestHeavy(OptimizerContract):
    optimizer = f"{HERE}:heavy"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.3, "momentum": 0.75}


class TestPower(ScheduleContract):
    schedule = f"{HERE}:power"
    keys: ClassVar[dict[str, Any]] = {"power": 3.0}


class TestWord(FilterContract):
    filter = f"{HERE}:word"
    keys: ClassVar[dict[str, Any]] = {"word": "never"}
    kept = ("now",)
    dropped = ("now or never",)


class TestNoted(ExporterContract):
    exporter = f"{HERE}:Noted"
    keys: ClassVar[dict[str, Any]] = {"note": "mine"}


def recipe(folder: Path, *overrides: str) -> Recipe:
    """The recipe above with overrides."""
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return load(Recipe, files=[folder / "recipe.yaml"], overrides=overrides, environ={}).value


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("task.unsen=3", "override task.unsen: unknown key (expected one of name, labels, unseen); did you mean"),
        ("task.unseen=-1", "override task.unseen: out of range (seen -1, expected a number >= 0)"),
        (
            "train.optimizer.momentum=1",
            "override train.optimizer.momentum: out of range (seen 1, expected a number <",
        ),
        (
            "train.optimizer.muon_lr=1",
            "muon_lr: unknown key (expected one of name, lr, groups, momentum); it goes with name: muon",
        ),
        (
            "train.optimizer.momentm=0.5",
            "train.optimizer.momentm: unknown key (expected one of name, lr, groups, momentum); did you mean",
        ),
        ("train.optimizer.betas=[0.9, 0.95]", "momentum); it goes with name: adamw or muon"),
        ("train.schedule.power=fast", "train.schedule.power: wrong value (seen 'fast', expected a number)"),
        ("data.clean.filters.0.wrod=x", "data.clean.filters.0.wrod: unknown key (expected one of name, word); did you"),
        (
            f"data.clean.filters=['{HERE}:word']",
            "data.clean.filters.0.word: missing (expected text of length >= 1: ",
        ),
        ("export.formats.1.note=3", "override export.formats.1.note: wrong value (seen 3, expected a text)"),
        ("serve.engine.memory_tokens=0", "serve.engine.memory_tokens: out of range (seen 0, expected a number > 0)"),
    ],
)
def test_a_bad_key_is_one_line_with_its_place(tmp_path, override, line):
    with pytest.raises(RecipeErrors) as caught:
        recipe(tmp_path, override)
    (problem,) = caught.value.problems
    assert line in str(problem)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe above, from the command line."""
    root = tmp_path_factory.mktemp("keys")
    (root / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    numbers = ("seven", *map(str, range(1, DOCUMENTS)))
    texts = [f"once there were {number} {'and more ' * (int(n) % 9)}things" for n, number in enumerate(numbers)]
    (root / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return run_recipe(root)


@pytest.mark.slow
def test_a_filter_gets_its_keys(workspace):
    (source,) = document(workspace, "data-*/report.json")["sources"]
    assert {reason: count["documents"] for reason, count in source["dropped"].items()} == {"has seven": 1}


@pytest.mark.slow
def test_a_schedule_gets_its_keys(workspace):
    (log,) = workspace.glob("train-*/events.jsonl")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rates = [event["value"] for event in events if event.get("name") == "train/lr"]
    assert rates == pytest.approx([0.01, 0.01, 0.01 * (1 - 0.9 * 0.5**2)])


@pytest.mark.slow
def test_an_optimizer_gets_its_keys(workspace):
    (path,) = workspace.glob("train-*/checkpoints/*/optimizer.safetensors")
    assert {name.rpartition(".")[2] for name in load_file(path)} == {"momentum_buffer"}
    assert document(workspace, "train-*/manifest.json")["identity"]["train"]["optimizer"]["momentum"] == 0.25


@pytest.mark.slow
def test_an_exporter_gets_its_keys(workspace):
    (note,) = workspace.glob("export-*/*.Noted/note.txt")
    assert note.read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_a_task_gets_its_keys(workspace):
    assert document(workspace, "evaluate-*/evaluation.json")["splits"]["test"]["record"]["unseen"] == 5


@pytest.mark.slow
def test_an_engine_gets_its_keys(workspace):
    (model,) = document(workspace, "serve-*/answer.json")["models"]["data"]
    assert model["context_tokens"] == 48


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "again"),
    [
        ("train.schedule.power=2", set()),
        ("data.clean.filters.0.word=eight", {"data", *TRAINED}),
        ("data.clean.filters.1.min_ratio=0.2", {"data", *TRAINED}),
        ("task.unseen=4", {"plan", *TRAINED}),
        ("train.optimizer.momentum=0.5", {"plan", *TRAINED}),
        ("train.schedule.power=1", {"plan", *TRAINED}),
        ("export.formats.1.note=yours", {"export", "serve"}),
        ("serve.engine.memory_tokens=40", {"serve"}),
    ],
)
def test_a_key_counts_in_the_address_of_what_it_matters_to(workspace, monkeypatch, override, again):
    monkeypatch.chdir(workspace.parent)
    monkeypatch.setenv(HOME, str(workspace.parent / "home"))
    changed = recipe(workspace.parent, override)
    left = find(changed, root=workspace, upto="report").keys()
    assert {name for name, stage in STAGES.items() if stage.usual} - left - {"report"} == again
