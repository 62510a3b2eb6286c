"""Lengths become steps in one place: counted where there is a dataset, estimated and said so where there is none."""

from __future__ import annotations

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.reading import counted_facts
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import RecipeError
from trainwright.planner.plan.estimated_facts import bytes_per_token, dataset_assumptions, estimated_facts
from trainwright.planner.plan.workload import DEFAULT_VALIDATION_TOKENS, resolve, steps_in, tokens_in
from trainwright.spec.workload import DatasetFacts
from trainwright.testing.artifacts import make_dataset

COUNTED = DatasetFacts(vocabulary=1024, train_tokens=10_240, train_documents=7, validation_tokens=900, counted=True)
EPOCH_TOKENS = 10_112
"""79 sequences of 128 tokens: of the 80 that fit one is left out, so that epochs begin at different tokens."""


def test_epochs_are_the_tokens_of_the_train_split(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.duration=3 epochs")
    workload = resolve(recipe, COUNTED, precision="fp32")
    assert workload.steps == round(3 * EPOCH_TOKENS / 1024)
    assert workload.validation_tokens == 900
    assert tokens_in(recipe, "0.5 epochs", COUNTED) == EPOCH_TOKENS // 2
    assert steps_in(recipe, "0.5 epochs", COUNTED) == 5


def test_no_more_is_validated_than_the_split_holds(tmp_path) -> None:
    for asked, entry in (("500", (500, "recipe", "")), ("5000", (900, "recipe", "the dataset"))):
        recipe = planned_recipe(tmp_path, f"train.validation.tokens={asked}")
        assert resolve(recipe, COUNTED, precision="fp32").validation_tokens == entry[0]
        known = {each.key: each for each in dataset_assumptions(recipe, COUNTED)}["validation"]
        assert (known.value, known.origin, known.source) == entry


def test_a_dataset_is_counted_as_its_shards_are_read(tmp_path) -> None:
    dataset = make_dataset(tmp_path, {"train": ["the cat sat", "on a mat", "and slept"], "validation": ["a dog ran"]})
    shards = TokenDataset.open(dataset.path)
    train, validation = shards.splits["train"], shards.splits["validation"]
    assert train.documents == 3 and train.tokens == len(train.read(0, train.tokens)) > 3
    assert counted_facts(dataset) == DatasetFacts(
        vocabulary=shards.vocabulary,
        train_tokens=train.tokens,
        train_documents=train.documents,
        validation_tokens=validation.tokens,
        validation_documents=validation.documents,
        counted=True,
    )
    (whole := tmp_path / "whole").mkdir()
    assert counted_facts(make_dataset(whole, {"train": ["all of it"]})).validation_tokens is None


def test_epochs_of_a_corpus_are_estimated_and_say_so(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.duration=2 epochs", "data.split={train: 0.5, validation: 0.5, test: 0}")
    facts = estimated_facts(recipe, corpus_bytes=1_000_000)
    assert facts.train_tokens == round(500_000 / bytes_per_token(1024))
    workload = resolve(recipe, facts, precision="fp32")
    assert workload.validation_tokens == facts.validation_tokens == facts.train_tokens, "the shares are equal"
    epoch_tokens = (facts.train_tokens // 128 - 1) * 128
    assert workload.steps == round(2 * epoch_tokens / 1024)
    entry = {each.name: each for each in dataset_assumptions(recipe, facts)}["tokens of an epoch"]
    assert (entry.value, entry.origin) == (epoch_tokens, "default")
    assert entry.source.startswith("estimated: the corpus's bytes")
    counted = {each.name: each for each in dataset_assumptions(recipe, COUNTED)}["tokens of an epoch"]
    assert (counted.value, counted.source) == (EPOCH_TOKENS, "the dataset")


def test_nothing_is_known_without_a_corpus(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.duration=3 epochs")
    with pytest.raises(RecipeError, match="not known yet"):
        resolve(recipe, estimated_facts(recipe, corpus_bytes=None), precision="fp32")


def test_without_epochs_the_recipe_says_it_all(tmp_path) -> None:
    recipe = planned_recipe(tmp_path)
    workload = resolve(recipe, estimated_facts(recipe, corpus_bytes=None), precision="bf16")
    assert (workload.steps, workload.precision) == (100, "bf16")
    assert workload.validation_tokens == DEFAULT_VALIDATION_TOKENS
    assert "tokens of an epoch" not in {
        entry.name for entry in dataset_assumptions(recipe, DatasetFacts(vocabulary=1024))
    }


def test_a_run_shorter_than_an_update_is_refused(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.duration=0.01 epochs")
    with pytest.raises(RecipeError, match="shorter than one update"):
        resolve(recipe, COUNTED, precision="fp32")


def test_attention_that_drops_weights_makes_its_scores_whole(tmp_path) -> None:
    for rate in (0.0, 0.1):
        recipe = planned_recipe(tmp_path, f"model.dropout.attention={rate}")
        assert resolve(recipe, COUNTED, precision="fp32").fused_attention == (rate == 0)


RAMP = "train.batch_ramp=[{batch_tokens: 256, until: 6 steps}, {batch_tokens: 512, until: 4000 tokens}]"


def test_durations_of_a_batch_that_grows_are_counted_update_by_update(tmp_path) -> None:
    recipe = planned_recipe(tmp_path, RAMP)
    sizes = [256] * 6 + [512] * 5 + [1024] * 60  # 1536 tokens, then 2560: 4096 is as near to 4000 as 3584 is not
    sums = [sum(sizes[:steps]) for steps in range(len(sizes))]
    for tokens in (256, 1000, 1536, 3000, 4096, 10_000, 20_000):
        nearest = min(range(len(sums)), key=lambda steps: abs(sums[steps] - tokens))
        assert steps_in(recipe, f"{tokens} tokens", COUNTED) == nearest, tokens
    epochs = min(range(len(sums)), key=lambda steps: abs(sums[steps] - 3 * EPOCH_TOKENS))
    assert steps_in(recipe, "3 epochs", COUNTED) == epochs
    assert steps_in(recipe, "9 steps", COUNTED) == 9 and tokens_in(recipe, "9 steps", COUNTED) == sums[9]
    workload = resolve(planned_recipe(tmp_path, RAMP, "train.duration=20000 tokens"), COUNTED, precision="fp32")
    assert abs(workload.total_tokens - 20_000) <= 512 and workload.total_tokens == sums[workload.steps]


def test_a_run_shorter_than_its_first_small_update_is_refused(tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"at least train.batch_ramp.0.batch_tokens \(256\)"):
        resolve(planned_recipe(tmp_path, RAMP, "train.duration=100 tokens"), COUNTED, precision="fp32")
