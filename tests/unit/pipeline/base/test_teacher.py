"""A teacher that a training cannot learn from is refused before anything runs, its weights unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.hub import ask, serving
from fixtures.planned_recipe import planned_recipe
from fixtures.tiny_models import decoder, tokenizer, write_trained
from trainwright.core.errors import TrainwrightError
from trainwright.pipeline.base.teacher import teacher_problems


def said(
    root: Path, teacher: Path | str, *overrides: str, tokens: Path | None = None, torch: bool = True
) -> list[TrainwrightError]:
    """What keeps the planned recipe from learning from a model."""
    keys = ("task.name=distill", f"task.teacher={teacher}", "train.sequence_tokens=64", *overrides)
    return list(teacher_problems(planned_recipe(root, *keys), tokens, load_torch=torch))


def test_a_training_without_a_teacher_has_no_problem_with_one(tmp_path) -> None:
    assert list(teacher_problems(planned_recipe(tmp_path), None, load_torch=True)) == []


@pytest.mark.parametrize("torch", [True, False])
def test_it_has_to_be_there_and_whole(tmp_path, torch) -> None:
    folder = tmp_path / "teacher"
    (problem,) = said(tmp_path, folder, torch=torch)
    assert str(problem).startswith(f"task.teacher: no such directory (seen {folder}, expected a checkpoint")
    folder.mkdir()
    assert [(each.what, each.where) for each in said(tmp_path, folder, torch=torch)] == [
        ("no model here", "task.teacher")
    ]
    write_trained(folder, decoder(), tokenizer())
    assert said(tmp_path, folder, torch=torch) == []
    (folder / "model.safetensors").write_bytes(b"short")
    (problem,) = said(tmp_path, folder, torch=torch)
    assert problem.where == "task.teacher" and "model.safetensors" in str(problem)


def test_one_on_the_hub_is_downloaded_where_it_teaches(tmp_path, monkeypatch) -> None:
    (tmp_path / "some" / "model").mkdir(parents=True)
    write_trained(tmp_path / "some" / "model", decoder(), tokenizer())
    with serving(tmp_path) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        for torch, weights in ((False, []), (True, ["model.safetensors"])):
            assert said(tmp_path, "hf://some/model", torch=torch) == []
            assert [name for name in hub.asked if name.endswith(".safetensors")] == weights
        (problem,) = said(tmp_path, "hf://some/other")
    (misspelt,) = said(tmp_path, "hf://model")
    assert (misspelt.where, misspelt.seen) == ("task.teacher", "'hf://model'")
    assert problem.what == "the hub has no such model, or a private one" and problem.where == "task.teacher"


def test_other_tokens_are_refused(tmp_path) -> None:
    folder = write_trained(tmp_path / "teacher", decoder(), tokenizer())
    (problem,) = said(tmp_path, folder, "data.tokenizer.vocabulary=300")
    assert (problem.where, problem.seen) == ("data.tokenizer", "320, at most 300")
    tokenizer(300).save(str(tmp_path / "other.json"))
    (problem,) = said(tmp_path, folder, tokens=tmp_path / "other.json")
    assert (problem.what, problem.where) == ("the pretrained model has another tokenizer", "task.teacher")
