"""A base that a training cannot begin with is refused before anything runs, its weights unread."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures.hub import ask, serving
from fixtures.planned_recipe import planned_recipe
from fixtures.tiny_models import tokenizer, write_trained
from trainwright.core.errors import TrainwrightError
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.pipeline.base.weights import base_problems
from trainwright.pipeline.steps import steps


def said(
    folder: Path, base: Path | str, *overrides: str, tokens: Path | None = None, load_torch: bool = True
) -> list[TrainwrightError]:
    """What keeps the planned recipe from going on from a model of 320 tokens, with a dataset in these."""
    recipe = planned_recipe(folder, f"model.init_from={base}", "data.tokenizer.vocabulary=320", *overrides)
    line = steps(recipe)
    (training,) = (step for step in line if step.name == "train")
    return list(base_problems(training, line, tokens, load_torch=load_torch))


def test_pretrained_weights_have_to_be_there(tmp_path) -> None:
    folder = tmp_path / "pretrained"
    assert [problem.what for problem in said(tmp_path, folder)] == ["no such directory"]
    folder.mkdir()
    assert [problem.what for problem in said(tmp_path, folder)] == ["no model here"]
    (folder / "config.json").write_text("{")
    assert [problem.what for problem in said(tmp_path, folder)] == ["cannot read JSON"]
    (folder / "config.json").write_text(json.dumps({"model_type": "mistrall"}))
    (problem,) = said(tmp_path, folder)
    assert problem.what == "unknown model_type"
    assert "did you mean 'mistral'?" in str(problem)
    assert (problem.where, problem.seen) == ("model.init_from", f"{folder}/config.json: 'mistrall'")


def test_weights_on_the_hub_are_asked_for_where_they_are_trained(tmp_path, base, monkeypatch) -> None:
    (tmp_path / "some").mkdir()
    base(form="config.json").rename(tmp_path / "some" / "model")
    with serving(tmp_path) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        for load_torch, weights in ((False, []), (True, ["model.safetensors"])):
            tokens = tmp_path / "some" / "model" / "tokenizer.json"
            assert said(tmp_path, "hf://some/model", tokens=tokens, load_torch=load_torch) == []
            assert [name for name in hub.asked if name.endswith(".safetensors")] == weights
        (problem,) = said(tmp_path, "hf://some/other")
    assert (problem.where, problem.seen) == ("model.init_from", "hf://some/other")


@pytest.fixture
def base(tmp_path):
    """Writes the model of a recipe with these overrides as a trained artefact or as a Hugging Face directory."""

    def write(*overrides: str, form: str = "model.json") -> Path:
        network = build_network(planned_recipe(tmp_path, *overrides).model_spec(vocabulary=320))
        network.initialise(0)
        folder = write_trained(tmp_path / "pretrained", network, tokenizer())
        if form == "config.json":
            (folder / "model.json").unlink()
            hf.write(folder, network.spec, dict(network.named_parameters()), dtype=torch.float32, extra={})
        return folder

    return write


@pytest.mark.parametrize("form", ["model.json", "config.json"])
def test_a_base_of_another_shape_is_named_in_plain_words(tmp_path, base, form) -> None:
    folder = base("model.width=192", "model.layers=5", form=form)
    assert [(problem.what, problem.where) for problem in said(tmp_path, folder)] == [
        ("the base has layers 5, this recipe asks for 2", "model.init_from"),
        ("the base has width 192, this recipe asks for 128", "model.init_from"),
    ]
    fixes = [problem.fix.removeprefix("write ") for problem in said(tmp_path, folder)]
    assert said(tmp_path, folder, *fixes) == []


def test_a_size_that_follows_from_the_base_s_own_setting_is_named_too(tmp_path, base) -> None:
    folder = base("model.ffn_width=100")
    (problem,) = said(tmp_path, folder)
    assert problem.what.startswith("the base has ffn_width 100, this recipe asks for ")


def test_a_size_that_follows_from_a_difference_is_said_as_it_would_be_then(tmp_path, base) -> None:
    folder = base("model.width=192", "model.head_size=32", "model.ffn_width=384")
    assert [problem.what for problem in said(tmp_path, folder)] == [
        "the base has width 192, this recipe asks for 128",
        f"the base has head_size 32, this recipe then asks for {192 // 2}",
        "the base has ffn_width 384, this recipe then asks for 512",
    ]
    fixes = [problem.fix.removeprefix("write ") for problem in said(tmp_path, folder)]
    assert said(tmp_path, folder, *fixes) == []


def test_another_family_is_all_that_is_said(tmp_path, base) -> None:
    folder = base("model.family=gpt2")
    (problem,) = said(tmp_path, folder)
    assert problem.what == "the base has family gpt2, this recipe asks for llama"
    assert problem.fix == "write model.family=gpt2"


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _flipped(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[9] ^= 0xFF
    path.write_bytes(data)


def _edited(change: Callable[[dict[str, torch.Tensor], str], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = load_file(path)
        change(weights, max(weights))
        save_file(weights, path)

    return edit


def _piped(name: str) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return replace


def _without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {')


@pytest.mark.parametrize("form", ["model.json", "config.json"])
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (_cut, "cannot read the weights"),
        (_flipped, "cannot read the weights"),
        (lambda folder: (folder / "model.safetensors").unlink(), "weights"),
        (_edited(lambda weights, name: weights.pop(name)), "a weight is missing"),
        (_edited(lambda weights, name: weights.update({name + "s": weights.pop(name)})), "a weight is missing"),
        (_edited(lambda weights, name: weights.update({name: weights[name][:-1].clone()})), "has another shape"),
        (_edited(lambda weights, name: weights.update({name: weights[name].to(torch.int8)})), "is quantised"),
        (_edited(lambda weights, name: weights.update(further=torch.ones(1))), "a weight has no place in this model"),
        (_without_tokenizer, "cannot read the tokenizer"),
        (_piped("tokenizer.json"), "a file of this model is missing"),
        (_piped("model.safetensors"), "weights"),
    ],
    ids=[
        "cut",
        "flipped",
        "absent",
        "missing",
        "renamed",
        "misshapen",
        "integers",
        "further",
        "tokenizer",
        "piped tokenizer",
        "piped",
    ],
)
def test_a_damaged_base_is_named_by_its_key_and_its_file(tmp_path, base, form, damage, what) -> None:
    folder = base(form=form)
    assert said(tmp_path, folder) == []
    damage(folder)
    (problem,) = said(tmp_path, folder)
    assert what in problem.what
    assert problem.where == "model.init_from"
    assert problem.seen is not None and problem.seen.startswith(str(folder))


@pytest.mark.parametrize("installed", [True, False])
def test_without_torch_its_shape_and_its_weights_headers_are_judged(tmp_path, base, monkeypatch, installed) -> None:
    folder = base("model.layers=5")
    assert len(said(tmp_path, folder, "model.layers=5")) == 0
    if not installed:
        monkeypatch.setattr("trainwright.pipeline.base.weights.find_spec", lambda name: None)
    monkeypatch.setattr("trainwright.pipeline.base.weights.load", None)  # which would load torch
    assert said(tmp_path, folder, "model.layers=5", load_torch=not installed) == []
    _cut(folder)
    found = said(tmp_path, folder, load_torch=not installed)
    assert [problem.what for problem in found] == [
        "the base has layers 5, this recipe asks for 2",
        "cannot read the weights",
    ]
    assert found[1].where == "model.init_from" and found[1].seen is not None and found[1].seen.startswith(str(folder))


def test_a_tokenizer_that_cannot_be_the_base_s_is_named(tmp_path, base) -> None:
    folder = base(form="config.json")
    (problem,) = said(tmp_path, folder, "data.tokenizer.vocabulary=319")
    assert (problem.where, problem.seen) == ("data.tokenizer", "320, at most 319")
    asked = f"data.tokenizer={{kind: pretrained, path: {folder}/tokenizer.json}}"
    assert problem.fix == f"set data.tokenizer.kind=pretrained and data.tokenizer.path={folder}/tokenizer.json"
    assert said(tmp_path, folder, asked) == []


@pytest.mark.parametrize("vocabulary", [{"<|endoftext|>": 319}, {"</s>": 256}, [["<|endoftext|>", -1.0]]])
def test_tokens_of_another_trainer_are_named_before_a_tokenizer_is_trained(tmp_path, base, vocabulary) -> None:
    folder = base(form="config.json")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocabulary}}))
    problem = said(tmp_path, folder, load_torch=False)[0]
    assert (problem.where, problem.seen) == ("data.tokenizer", f"{folder}/tokenizer.json")
    assert problem.fix == f"set data.tokenizer.kind=pretrained and data.tokenizer.path={folder}/tokenizer.json"


def test_the_tokens_of_the_dataset_are_those_of_the_base(tmp_path, base) -> None:
    folder = base(form="config.json")
    record = json.loads((folder / "tokenizer.json").read_text())
    record["model"]["merges"] = [" ".join(pair) for pair in record["model"]["merges"]]
    (tmp_path / "older.json").write_text(json.dumps(record))
    assert said(tmp_path, folder, tokens=tmp_path / "older.json") == [], "as earlier versions wrote it"
    tokenizer(300).save(str(tmp_path / "other.json"))
    (problem,) = said(tmp_path, folder, tokens=tmp_path / "other.json")
    assert (problem.what, problem.where) == ("the pretrained model has another tokenizer", "model.init_from")


def test_an_embedding_with_rows_that_no_token_has_is_named(tmp_path, base) -> None:
    folder = base(form="config.json")
    tokenizer(300).save(str(folder / "tokenizer.json"))
    (problem,) = said(tmp_path, folder, tokens=folder / "tokenizer.json")
    assert (problem.where, problem.seen) == ("model.init_from", "320 entries, 300 tokens")
