"""Windows: every token once an epoch, a new order each epoch, any step on its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.tasks.windows import Windows
from trainwright.planner.plan.workload import steps_in
from trainwright.spec.workload import DatasetFacts


@pytest.fixture
def split(dataset):
    return TokenDataset.open(dataset.path).splits["train"]


def windows(split, *, seed: int = 1, sequence: int = 16, batch: int = 3) -> Windows:
    return Windows(split, sequence_tokens=sequence, batch_sequences=batch, seed=seed)


def test_an_epoch_visits_every_window_once_and_never_overlaps(split) -> None:
    source = windows(split, batch=1)
    starts = sorted(source.starts(step)[0] for step in range(source.windows_per_epoch))
    assert set(np.diff(starts)) == {16}
    assert starts[0] >= 0
    assert starts[-1] + 17 <= split.tokens
    assert split.tokens - len(starts) * 16 < 3 * 16, "little is left out"


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_the_updates_of_whole_epochs_visit_each_window_so_often(split, tmp_path, epochs) -> None:
    for sequence in (2, 5, 16, 31, split.tokens // 2, split.tokens - 1):
        for batch in (1, 2, 3, 7):
            sizes = (f"train.sequence_tokens={sequence}", f"train.batch_tokens={batch * sequence}")
            asked = planned_recipe(tmp_path, f"model.context_tokens={sequence}", *sizes)
            facts = DatasetFacts(vocabulary=300, train_tokens=split.tokens, counted=True)
            source = windows(split, sequence=sequence, batch=batch)
            visits = steps_in(asked, f"{epochs} epochs", facts) * batch
            # Updates are whole: the last one may be half done, or half begun.
            assert abs(visits - epochs * source.windows_per_epoch) <= batch / 2


def test_epochs_differ_in_order_and_offset(split) -> None:
    source = windows(split, batch=1)
    count = source.windows_per_epoch
    orders = [[source.starts(step)[0] for step in range(epoch * count, (epoch + 1) * count)] for epoch in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    assert len({min(order) for order in orders}) > 1


def test_a_batch_is_a_function_of_seed_and_step_alone(split) -> None:
    source = windows(split)
    forwards = [source.batch(step)["tokens"] for step in range(6)]
    assert torch.equal(forwards[4], windows(split).batch(4)["tokens"])
    assert not torch.equal(windows(split, seed=2).batch(4)["tokens"], forwards[4])


def test_rows_are_the_split_s_own_tokens_with_one_target_more(split) -> None:
    source = windows(split)
    batch = source.batch(2)["tokens"]
    assert batch.shape == (3, 17)
    whole = split.read(0, split.tokens).astype(np.int64)
    for start, row in zip(source.starts(2), batch, strict=True):
        np.testing.assert_array_equal(row.numpy(), whole[start : start + 17])


def test_one_window_is_enough_and_less_is_refused(split) -> None:
    assert windows(split, sequence=split.tokens - 1).batch(0)["tokens"].shape == (3, split.tokens)
    with pytest.raises(DataError, match="shorter than one sequence"):
        windows(split, sequence=split.tokens)
