"""A layout in a recipe becomes the planner's; slips are named with their place."""

from __future__ import annotations

from dataclasses import fields

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.workload import ParallelPlan


def test_every_axis_goes_into_the_plan() -> None:
    said = {"dp_replicate": 2, "dp_shard": 3, "tp": 4, "pp": 5, "cp": 6, "ep": 7, "zero_stage": 2}
    said |= {"sequence_parallel": False, "schedule": "gpipe", "virtual_stages": 8}
    parallel = LayoutSection.model_validate(said).parallel()
    assert {name: getattr(parallel, name) for name in said} == said
    assert set(LayoutSection.model_fields) <= {field.name for field in fields(ParallelPlan)}


def test_one_copy_is_one_device() -> None:
    assert LayoutSection(dp_replicate=1).parallel() == ParallelPlan()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({}, "a layout says how many ranks: set one of dp_replicate.*or layout: auto"),
        ({"zero_stage": 3}, "seen zero_stage alone"),
        ({"dp_replicate": 2, "zero_stage": 2}, "zero_stage=2 does nothing without dp_shard or cp"),
        ({"dp_shard": 2, "schedule": "gpipe"}, "schedule=gpipe does nothing without pp"),
        ({"dp_shard": 2, "context": "ulysses"}, "context=ulysses does nothing without cp"),
        ({"dp_shard": 2, "sequence_parallel": False}, "sequence_parallel=False does nothing without tp"),
        ({"tp": 2, "virtual_stages": 2}, "virtual_stages=2 does nothing without pp"),
    ],
)
def test_a_key_that_does_nothing_is_refused(said, line) -> None:
    with pytest.raises(ValidationError, match=line):
        LayoutSection.model_validate(said)


def test_a_layout_that_was_written_out_in_full_is_read_again() -> None:
    layout = LayoutSection(dp_shard=2, zero_stage=2)
    assert LayoutSection.model_validate(layout.model_dump()) == layout


@pytest.mark.parametrize(
    ("said", "field"), [({"dp_shards": 2}, "dp_shards"), ({"tp": 0}, "tp"), ({"zero_stage": 4}, "zero_stage")]
)
def test_slips_are_refused_by_name(said: dict[str, int], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        LayoutSection.model_validate(said)


def test_several_chunks_interleave_where_no_schedule_is_asked_for() -> None:
    assert LayoutSection(pp=2, virtual_stages=2).parallel().schedule == "interleaved"
    assert LayoutSection(pp=2, virtual_stages=2, schedule="1f1b").parallel().schedule == "1f1b"
    assert LayoutSection(pp=2).parallel().schedule == "1f1b"
