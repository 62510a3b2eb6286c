"""Every document once an epoch, in another order each time, whoever reads which rows."""

from __future__ import annotations

import numpy as np

from trainwright.model.tasks.epochs import drawn

SIZES = {"batch": 4, "documents": 10, "seed": 3}


def test_an_epoch_has_each_document_once_and_the_next_another_order() -> None:
    steps = [drawn(step, range(4), **SIZES) for step in range(5)]
    epochs, order = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    assert epochs.tolist() == [0] * 10 + [1] * 10
    assert sorted(order[:10].tolist()) == sorted(order[10:].tolist()) == list(range(10))
    assert order[:10].tolist() != order[10:].tolist()


def test_some_rows_are_read_alone() -> None:
    epochs, order = drawn(2, range(4), **SIZES)
    for rows in (range(1), range(1, 4), range(2, 2)):
        part = drawn(2, rows, **SIZES)
        assert part[0].tolist() == epochs[rows.start : rows.stop].tolist()
        assert part[1].tolist() == order[rows.start : rows.stop].tolist()
