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


def test_nothing_said_is_one_device() -> None:
    assert LayoutSection().parallel() == ParallelPlan()


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
