"""Steps of other tasks than texts: each makes its batches of documents that are numbers."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fixtures.paired import SEQUENCE, embed_recipe
from trainwright.core.errors import RecipeError
from trainwright.model.tasks.next_token import NextToken
from trainwright.planner.counts.parallel.dry_run import DryRun
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskKind
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.plan.build import build_plan
from trainwright.stages.train.ranks.dry_run.batches import task_and_batch
from trainwright.stages.train.ranks.dry_run.run import dry_run
from trainwright.testing.machine import fake_machine

TOKENS = 64
CLASSES = {"name": "classify", "labels": ["good", "bad", "mixed", "neither"]}
"""As many as ranks that share the head: FSDP fills up rows that do not divide, which no plan counts."""


def recipe_of(task: dict[str, Any], layout: dict[str, object]) -> Recipe:
    sources: list[dict[str, Any]] = [{"kind": "jsonl", "paths": ["reviews.jsonl"], "label_key": "label"}]
    if task["name"] in ("preference", "reward"):
        sources = [{"kind": "preferences", "paths": ["pairs.jsonl"]}]
    section = {
        "sequence_tokens": TOKENS,
        "batch_tokens": 16 * TOKENS,
        "duration": "3 steps",
        "precision": "bf16",
        "exec": {"micro_batch": 2, "layout": layout, "device": "cpu", "compile": False},
    }
    model = {"layers": 3, "width": 64, "heads": 4, "ffn_width": 96, "context_tokens": TOKENS, "tied": False}
    return Recipe.model_validate(
        {"name": "dry", "model": model, "data": {"sources": sources}, "task": task, "train": section}
    )


def counted(task: dict[str, Any], layout: dict[str, object]) -> DryRun:
    facts = DatasetFacts(vocabulary=320, train_tokens=90_000, train_documents=900, counted=True)
    recipe = recipe_of(task, layout)
    return dry_run(recipe, build_plan(recipe, fake_machine(), facts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversed(NextToken):
    """Predicts each token from those behind it."""

    def inputs(self, network, batch):
        return NextToken.inputs(self, network, {"tokens": batch["tokens"].flip(1)})


class Counting(Reversed):
    """Reads how many tokens are its favourite one before it learns them."""

    def hidden(self, network, inputs):
        favourites = int((inputs["tokens"] == 7).sum())
        return NextToken.hidden(self, network, inputs) * (1 + favourites)


@pytest.fixture
def plugged(monkeypatch) -> None:
    def made(kind):
        return lambda recipe, dataset: kind(sequence_tokens=recipe.train.sequence_tokens)

    module = types.SimpleNamespace(
        REVERSED=TaskKind(make="my_rules:reversed_text"),
        COUNTING=TaskKind(make="my_rules:counting"),
        reversed_text=made(Reversed),
        counting=made(Counting),
    )
    monkeypatch.setitem(sys.modules, "my_rules", module)


def test_documents_fill_a_sequence_and_have_all_labels() -> None:
    task, batch = task_and_batch(recipe_of(CLASSES, {"dp_shard": 2}), vocabulary=320, sequences=6)
    assert task.unit == "document"
    assert batch["tokens"].shape == (6, TOKENS)
    assert torch.equal(batch["last"], torch.full((6,), TOKENS - 1))
    found = set(batch["class"].tolist())  # two documents of eight are left, of one label at most
    assert found <= {0, 1, 2, 3} and len(found) >= 3


@pytest.mark.parametrize(
    "layout",
    [
        {"dp_shard": 4},
        {"tp": 2, "dp_shard": 2},
        {"tp": 2, "sequence_parallel": False},
        {"cp": 2},
        {"pp": 2},
        {"pp": 2, "tp": 2},
    ],
    ids=str,
)
def test_classification_sends_and_keeps_what_is_planned(layout: dict[str, object]) -> None:
    for rank in counted(CLASSES, layout).ranks:
        sent, planned = (
            {(each.kind, each.axis): (each.count, each.size_bytes) for each in side}
            for side in (rank.sent, rank.planned_sent)
        )
        assert sent == planned
        heads = [share.whole for name, share in rank.shares.items() if name == "head.weight"]
        assert heads in ([(4, 64)], [])
        assert rank.ratios()["weights"] == pytest.approx(1, abs=0.01)


def test_a_plug_in_is_counted_with_the_batches_that_it_makes(plugged: None) -> None:
    (reversed_,) = counted({"name": "my_rules:REVERSED"}, {"dp_shard": 2}).ranks
    (plain,) = counted({"name": "next-token"}, {"dp_shard": 2}).ranks
    assert reversed_.sent == plain.sent
    assert reversed_.shares == plain.shares
    assert reversed_.memory["weights"] == plain.memory["weights"]
    assert reversed_.memory["activations"] >= plain.memory["activations"]


def test_a_plug_in_that_reads_values_is_named(plugged: None) -> None:
    with pytest.raises(RecipeError, match="has none in a dry run"):
        counted({"name": "my_rules:COUNTING"}, {"dp_shard": 2})


def test_images_make_batches_without_a_dataset() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "dry",
            "task": {"name": "classify-images", "labels": ["a", "b"], "flip": True},
            "model": {"family": "vit", "layers": 1, "width": 16, "heads": 2, "image_size": 8, "patch_size": 4},
            "data": {"sources": [{"kind": "images", "paths": ["x"]}], "images": {"size": 8, "colour": "grey"}},
            "train": {"sequence_tokens": 5, "batch_tokens": 15},
        }
    )
    task, batch = task_and_batch(recipe, vocabulary=256, sequences=3)
    assert task.unit == "image"
    assert (batch["images"].shape, batch["images"].dtype) == ((3, 1, 8, 8), torch.uint8)
    assert set(batch["class"].tolist()) <= {0, 1}


def test_several_labels_have_an_answer_each() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "dry",
            "task": {"name": "classify-many", "labels": ["a", "b", "c"]},
            "model": {"layers": 1, "width": 16, "heads": 2, "context_tokens": 8},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], "label_key": "y", "label_kind": "names"}]},
            "train": {"sequence_tokens": 8, "batch_tokens": 24},
        }
    )
    task, batch = task_and_batch(recipe, vocabulary=256, sequences=3)
    assert (task.unit, batch["has"].sum(dim=1).tolist()) == ("label", [1, 1, 1])


def test_documents_have_numbers_that_differ() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "dry",
            "task": {"name": "regress"},
            "model": {"layers": 1, "width": 16, "heads": 2, "context_tokens": 8},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], "label_key": "y", "label_kind": "number"}]},
            "train": {"sequence_tokens": 8, "batch_tokens": 24},
        }
    )
    task, batch = task_and_batch(recipe, vocabulary=256, sequences=3)
    assert task.unit == "document" and len(set(batch["number"].tolist())) == 3


def test_words_have_labels() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "dry",
            "task": {"name": "classify-tokens", "labels": ["a", "b"]},
            "model": {"layers": 1, "width": 16, "heads": 2, "context_tokens": 8},
            "data": {"sources": [{"kind": "words", "paths": ["x"]}]},
            "train": {"sequence_tokens": 8, "batch_tokens": 24},
        }
    )
    task, batch = task_and_batch(recipe, vocabulary=256, sequences=3)
    assert task.unit == "word" and int(task.weight(batch)) == 24 and set(batch["targets"].flatten().tolist()) == {0, 1}


def test_the_texts_of_a_record_fill_a_sequence() -> None:
    recipe = embed_recipe(negatives=1, train={"exec": {"compile": False}})
    task, batch = task_and_batch(recipe, vocabulary=320, sequences=8)
    assert batch["tokens"].shape == (8, SEQUENCE) and int(task.weight(batch)) == 8
    assert (batch["documents"] < 3).all(), "no padding"


@pytest.mark.parametrize(
    "task", [{"name": "preference"}, {"name": "preference", "loss": "orpo"}, {"name": "reward"}], ids=str
)
def test_two_answers_fill_a_sequence_and_need_no_first_network(task: dict[str, Any]) -> None:
    _, batch = task_and_batch(recipe_of(task, {"dp_shard": 2}), vocabulary=320, sequences=6)
    assert batch["tokens"].shape == (6, TOKENS)
    assert batch["pairs"].tolist() == [1] * 6
    for rank in counted(task, {"tp": 2, "dp_shard": 2}).ranks:
        assert rank.ratios()["weights"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "task", [{"name": "classify", "labels": ["a", "b"]}, {"name": "masked"}], ids=["classes", "gaps"]
)
def test_an_encoder_has_tokens_around_a_text_and_for_a_gap(task: dict[str, Any]) -> None:
    labelled = {"label_key": "y"} if task["name"] == "classify" else {}
    recipe = Recipe.model_validate(
        {
            "name": "dry",
            "task": task,
            "model": {"family": "bert", "layers": 1, "width": 16, "heads": 2, "context_tokens": 8},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], **labelled}]},
            "train": {"sequence_tokens": 8, "batch_tokens": 24},
        }
    )
    _, batch = task_and_batch(recipe, vocabulary=256, sequences=3)
    assert batch["tokens"].shape == (3, 8)
    if task["name"] == "classify":
        assert batch["tokens"][:, 0].tolist() == batch["tokens"][:, -1].tolist() == [0, 0, 0]
