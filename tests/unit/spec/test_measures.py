"""Parts sum to their whole, and unknown parts are refused."""

from __future__ import annotations

import pytest

from trainwright.spec.measures import BESIDE_STEPS, STEP_PHASES, MemoryUse, PhaseTimes


def test_parts_sum_to_the_whole() -> None:
    times = PhaseTimes(forward=1.0, backward=2.0, communicate=0.5)
    assert times.total_s == 3.5
    assert times.scaled(2).total_s == 7.0
    assert sum(times.as_dict().values()) == times.total_s
    assert MemoryUse(weights=4, workspace=6).total_bytes == 10


def test_a_step_has_no_phase_that_stands_beside_it() -> None:
    whole = PhaseTimes(forward=1.0, other=0.5, compile=30.0, checkpoint=2.0, evaluate=4.0)
    assert whole.of_steps == PhaseTimes(forward=1.0, other=0.5)
    assert {*STEP_PHASES, *BESIDE_STEPS, "other"} == set(PhaseTimes.names())
    assert STEP_PHASES[0] == "data_wait"
    assert STEP_PHASES[-1] == "update"


def test_from_mapping_takes_known_names_only() -> None:
    assert PhaseTimes.from_mapping({"update": 2.0}).update == 2.0
    with pytest.raises(KeyError, match="PhaseTimes has no lunch"):
        PhaseTimes.from_mapping({"lunch": 1.0})


def test_the_names_of_the_design() -> None:
    assert PhaseTimes.names() == (
        "data_wait",
        "preprocess",
        "host_to_device",
        "forward",
        "backward",
        "communicate",
        "update",
        "compile",
        "checkpoint",
        "evaluate",
        "other",
    )
    assert MemoryUse.names() == (
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "logits",
        "communication",
        "workspace",
        "reserved_unused",
    )
