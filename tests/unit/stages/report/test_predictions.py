from __future__ import annotations

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.spec.measures import PhaseTimes
from trainwright.stages.report.blocks import Figure, Table
from trainwright.stages.report.predictions import PHASE_TONES, elsewhere, prediction

MIB = 2.0**20


def test_every_phase_has_a_tone_of_its_own():
    tones = [PHASE_TONES[name] for name in PhaseTimes.names()]
    assert len(set(tones)) == len(tones)


def test_bars_are_as_long_as_the_plan_and_the_measurement(record):
    step, whole, memory = (block.views[0][1] for block in prediction(record).blocks if isinstance(block, Figure))
    totals = [bars[0].total for _, bars in step.groups]
    assert totals == pytest.approx([record.plan.estimate.phases.total_s, sum(record.training["step_phases"].values())])
    assert whole.groups[1][1][0].total == pytest.approx(sum(record.training["phases"].values()))
    label, (predicted, measured) = memory.groups[-1]
    assert (label, predicted.total) == ("total", record.plan.estimate.memory.total_bytes)
    assert measured.total == sum(record.training["memory"].values())
    assert (predicted.segments[0].ghost, measured.segments[0].ghost) == (True, False)


def tables(record):
    return {block.title: block for block in prediction(record).blocks if isinstance(block, Table)}


def test_the_audit_is_grouped_and_says_how_far_off_each_line_is(record):
    table = tables(record)["Audit"]
    assert table.headings == {0: "the run", 4: "one step"}
    assert [row[0] for row in table.rows][1:] == [
        "peak memory",
        "tokens per second",
        "model FLOPs utilisation",
        "update",
        "waiting for data",
    ]
    assert table.rows[1][1:3] == ["607 MiB", "616 MiB"]
    assert [(row[3].text, row[3].tone) for row in table.rows[:2]] == [("+4 %", "good"), ("+1 %", "good")]
    assert table.note.startswith("Training took 4 % longer than predicted (within the predicted range)")


def test_tables_of_long_texts_become_lists_on_a_phone(record):
    assert not tables(record)["Audit"].is_list_on_a_phone
    assert tables(record)["What the plan rests on"].is_list_on_a_phone
    (rented,) = elsewhere(record).blocks
    assert rented.is_list_on_a_phone


def memory_chart(record):
    figures = [block for block in prediction(record).blocks if isinstance(block, Figure)]
    return {label: [bar.total for bar in bars] for label, bars in figures[-1].views[0][1].groups}, figures[-1].note


def test_workspace_is_split_into_the_process_and_the_rest(record):
    bars, note = memory_chart(record)
    assert "workspace" not in bars
    assert bars["process before training"] == [300 * MIB, 310 * MIB]
    assert bars["temporaries and allocator"] == [20 * MIB, 21 * MIB]
    assert bars["total"] == [record.plan.estimate.memory.total_bytes, sum(record.training["memory"].values())]
    assert "malloc keeps" in note


@pytest.mark.parametrize("process_bytes", [None, 0])
def test_workspace_stays_whole_where_nobody_measured_the_process(tmp_path, fake, process_bytes):
    training = fake.summary() | {"process_bytes": process_bytes}
    bars, _ = memory_chart(fake.run(tmp_path, fake.recipe(), replace={"train": training}))
    assert bars["workspace"] == [320 * MIB, 331 * MIB]
    assert "process before training" not in bars


def test_the_planner_still_says_how_large_it_takes_the_process_to_be(tmp_path):
    plan = plan_of(planned_recipe(tmp_path))
    assert "process" in {item.key for item in plan.estimate.assumptions}


def test_rentals_are_sorted_by_cost_and_unpriced_ones_come_last(record):
    (table,) = elsewhere(record).blocks
    assert [row[0] for row in table.rows] == ["l4", "t4", "h100-sxm", "rtx-2080-ti"]
    assert table.rows[2][5] == "unknown"
    assert table.rows[2][6].text == "no checked price is known"
    assert table.rows[3][2].text == "has no bf16"


def test_a_plan_alone_is_shown_as_prediction(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), without=("train", "audit"))
    step = next(block for block in prediction(record).blocks if isinstance(block, Figure)).views[0][1]
    assert [label for label, _ in step.groups] == ["predicted"]
