"""Questions are asked once, also of an evaluation that was interrupted; the truth is greedy decoding by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from fixtures import tiny_models
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate import asking
from trainwright.stages.evaluate.asking import ask

TEXTS = [f"def f{number}" for number in range(5)]


def recipe_of(folder: Path, answers: list[str], **evaluate: object) -> Recipe:
    lines = [json.dumps({"question": text, "answer": answer}) for text, answer in zip(TEXTS, answers, strict=True)]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return Recipe.model_validate(
        {
            "name": "tiny",
            "model": {"layers": 3, "width": 32, "heads": 4},
            "data": {"sources": [{"kind": "python-stdlib"}]},
            "evaluate": {"questions": {"path": str(folder / "questions.jsonl")}, "max_new_tokens": 4} | evaluate,
        }
    )


@pytest.fixture
def told():
    return []


@pytest.fixture
def answers(tmp_path, told):
    """Asks a tiny model; returns the record."""
    model, tokenizer = tiny_models.decoder(), tiny_models.tokenizer()

    def asked(recipe: Recipe) -> dict:
        return ask(recipe, model, tokenizer, None, out=tmp_path, progress=lambda *done: told.append(done))

    asked.model, asked.tokenizer = model, tokenizer
    return asked


def by_hand(model, tokenizer: Tokenizer, text: str, count: int) -> str:
    """The likeliest tokens one after the other, each from a pass over the whole text."""
    ids = tokenizer.encode(text).ids
    first = len(ids)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model.logits(model(torch.tensor([ids])))[0, -1].argmax()))
    return tokenizer.decode(ids[first:], skip_special_tokens=False)


def test_answers_are_the_models_own(answers, tmp_path) -> None:
    right = [by_hand(answers.model, answers.tokenizer, text, 4) for text in TEXTS]
    record = answers(recipe_of(tmp_path, [*right[:3], "something else", "and this"]))
    assert record["count"] == 5 and record["too_long"] == 0
    assert record["metrics"]["exact_match"]["value"] == 3 / 5
    assert {each["question"]: each["said"] for each in record["furthest"]} == dict(
        zip(TEXTS[3:], right[3:], strict=True)
    )


def test_an_interrupted_evaluation_asks_only_what_is_left(answers, tmp_path, monkeypatch, told) -> None:
    monkeypatch.setattr(asking, "PART", 2)
    recipe = recipe_of(tmp_path, ["x"] * 5)
    whole = answers(recipe)
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]
    parts = sorted(tmp_path.glob(".answers-*.json"))
    assert len(parts) == 3
    asked: list[int] = []
    complete = asking.complete
    monkeypatch.setattr(asking, "complete", lambda *args: asked.append(len(args[2])) or complete(*args))
    parts[0].unlink()
    assert answers(recipe) == whole
    assert len(asked) == 1


def test_what_leaves_no_room_is_counted_and_not_asked(answers, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "TEXTS", ["def", "x " * 200])
    record = answers(recipe_of(tmp_path, ["y", "y"]))
    assert (record["count"], record["too_long"]) == (2, 1)
    assert {each["question"]: each["said"] for each in record["furthest"]}["x " * 200] == ""


def test_an_answer_ends_at_a_stop_text(answers, tmp_path) -> None:
    right = by_hand(answers.model, answers.tokenizer, TEXTS[0], 4)
    stop = right[1]
    path = {"path": str(tmp_path / "questions.jsonl"), "stop": [stop]}
    recipe = recipe_of(tmp_path, [right.partition(stop)[0], *"xxxx"], questions=path)
    assert answers(recipe)["metrics"]["exact_match"]["value"] >= 1 / 5
