"""Values that mean something else than was meant are refused with what was; all others are left to their types."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.meant import NO_DEVICES, check
from trainwright.spec.sections.train import DEVICES, TrainExec


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", "cuda"),
        ("device", 3),
        ("fit_memory", "20GiB"),
        ("fit_memory", "20 GOB"),
        ("fit_memory", None),
        ("best_by", "max my_metric"),
        ("best_by", 5),
        ("checkpoint_to", "runs"),
        ("checkpoint_to", None),
    ],
)
def test_other_values_pass(key, value) -> None:
    check(key, value)


def test_every_name_that_is_refused_is_none_of_ours() -> None:
    assert not NO_DEVICES.keys() & set(DEVICES)


@pytest.mark.parametrize("value", ["min", "min  loss", "least loss", ""])
def test_a_pattern_is_said_in_examples(value) -> None:
    with pytest.raises(ValueError, match="of classes and rewards max accuracy, of embeddings max mrr"):
        check("best_by", value)


def test_defaults_need_no_look(monkeypatch) -> None:
    monkeypatch.setattr("trainwright.spec.sections.train.load", None)
    assert TrainExec().device == "auto"
