from __future__ import annotations

import pytest

from trainwright.spec.measures import PhaseTimes
from trainwright.stages.report.blocks import Figure, Table
from trainwright.stages.report.predictions import PHASE_TONES, elsewhere, prediction


def test_every_phase_has_a_tone_of_its_own():
    assert set(PHASE_TONES) == set(PhaseTimes.names())
    assert len(set(PHASE_TONES.values())) == len(PHASE_TONES)


def test_bars_are_as_long_as_the_plan_and_the_measurement(record):
    step, whole, memory = (block.views[0][1] for block in prediction(record).blocks if isinstance(block, Figure))
    totals = [bars[0].total for _, bars in step.groups]
    assert totals == pytest.approx([record.plan.estimate.phases.total_s, sum(record.training["step_phases"].values())])
    assert whole.groups[1][1][0].total == pytest.approx(sum(record.training["phases"].values()))
    label, (predicted, measured) = memory.groups[-1]
    assert (label, predicted.total) == ("total", record.plan.estimate.memory.total_bytes)
    assert measured.total == sum(record.training["memory"].values())
    assert (predicted.segments[0].ghost, measured.segments[0].ghost) == (True, False)


def test_audit_says_within_or_outside_where_there_is_a_range(record):
    table = next(block for block in prediction(record).blocks if isinstance(block, Table) and block.title == "Audit")
    assert [row[-1].text for row in table.rows] == ["within the range", "", "", "", "outside the range", ""]
    assert table.rows[1][1:5] == ["peak memory", "607 MiB", "616 MiB", "1.01×"]
    assert table.rows[3][2] == "44 %"
    assert table.rows[5][4] == ""


def test_rentals_are_sorted_by_cost_and_unpriced_ones_come_last(record):
    (table,) = elsewhere(record).blocks
    assert [row[0] for row in table.rows] == ["l4", "t4", "h100-sxm", "rtx-2080-ti"]
    assert table.rows[2][5] == "unknown"
    assert table.rows[3][2].text == "has no bf16"


def test_a_plan_alone_is_shown_as_prediction(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), without=("train", "audit"))
    step = next(block for block in prediction(record).blocks if isinstance(block, Figure)).views[0][1]
    assert [label for label, _ in step.groups] == ["predicted"]
