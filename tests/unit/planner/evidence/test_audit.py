import json
from dataclasses import replace

import pytest

from fixtures.finished import summary_of
from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.planner.evidence.audit import audit, ledger_line
from trainwright.spec.measures import MemoryUse
from trainwright.spec.summary import EarlyStopping, RankUse


@pytest.fixture
def plan(tmp_path):
    return plan_of(planned_recipe(tmp_path))


def test_a_perfect_prediction_has_ratio_one_everywhere(plan):
    comparison = audit(plan, summary_of(plan))
    assert comparison.seconds_ratio == pytest.approx(1)
    assert comparison.memory_ratio == pytest.approx(1)
    assert all(row.ratio is None or row.ratio == pytest.approx(1) for row in comparison.rows)
    assert comparison.rows[0].within


def test_a_slow_and_large_run_shows_in_every_row(plan):
    comparison = audit(plan, summary_of(plan, slower=2.0, larger=1.5))
    by_name = {(row.group, row.quantity): row for row in comparison.rows}
    assert comparison.seconds_ratio == pytest.approx(2)
    assert by_name["step", "forward"].ratio == pytest.approx(2)
    assert by_name["memory", "activations"].ratio == pytest.approx(1.5)
    assert by_name["run", "tokens per second"].ratio == pytest.approx(0.5)
    assert by_name["run", "training time"].within is False


def test_a_run_that_stopped_early_is_held_against_the_steps_that_it_made(plan):
    """Half of the steps in half of the time, but for compiling, is what was planned."""
    compiled = replace(plan.estimate.run_phases, compile=8.0)
    planned = replace(plan, estimate=replace(plan.estimate, run_phases=compiled))
    whole = summary_of(planned)
    early = EarlyStopping(planned_steps=2 * whole.steps, result_step=1)
    phases = replace(compiled.scaled(0.5), compile=8.0)
    comparison = audit(planned, replace(whole, phases=phases, early_stopping=early))
    by_name = {(row.group, row.quantity): row for row in comparison.rows}
    assert by_name["whole run", "compile"].ratio == by_name["whole run", "forward"].ratio == pytest.approx(1)
    longer = phases.total_s / compiled.total_s
    assert by_name["run", "training time"].predicted == pytest.approx(plan.estimate.seconds.mid * longer)
    patient, perfect = replace(early, planned_steps=whole.steps), summary_of(plan)
    assert audit(plan, replace(perfect, early_stopping=patient)) == audit(plan, perfect)


def test_what_was_not_predicted_has_no_ratio(plan):
    perfect = summary_of(plan)
    measured = replace(perfect, step_phases=replace(perfect.step_phases, data_wait=10.0))
    row = next(row for row in audit(plan, measured).rows if (row.group, row.quantity) == ("step", "data_wait"))
    assert (row.predicted, row.measured, row.ratio) == (0.0, 10.0, None)


def test_ranks_are_held_against_the_plan_each_phase_and_class_by_itself(plan):
    perfect = summary_of(plan)
    ranks = tuple(
        RankUse(
            rank=rank,
            host="h",
            steps=10,
            phases=replace(perfect.step_phases.scaled(10 * factor), checkpoint=99.0),
            memory=MemoryUse(**{name: factor * value for name, value in perfect.memory.as_dict().items()}),
        )
        for rank, factor in enumerate((1.0, 4.0, 2.0))
    )
    alone, several = (
        {(row.group, row.quantity): row for row in audit(plan, summary).rows}
        for summary in (perfect, replace(perfect, ranks=ranks))
    )
    assert {row.ranks for row in alone.values()} == {None}
    forward, memory = several["step", "forward"], several["run", "peak memory"]
    assert forward.ranks == pytest.approx([factor * forward.measured for factor in (1, 2, 4)])
    assert memory.ranks == pytest.approx([factor * memory.measured for factor in (1, 2, 4)])
    assert several["memory", "weights"].ranks[2] == pytest.approx(4 * plan.estimate.memory.weights)
    assert several["run", "training time"].ranks is None
    assert {key: replace(row, ranks=None) for key, row in several.items()} == alone, "the ledger gets what it got"


def test_the_ledger_line_is_json_with_both_numbers(plan):
    versions = {"torch": "2.13.0", "trainwright": "0.1.0", "numpy": "2"}
    trained = replace(plan.model, vocabulary=1000)
    comparison = audit(plan, summary_of(plan))
    line = ledger_line(plan, comparison, model=trained, steps=90, run="abc", finished_unix_s=1.0, versions=versions)
    line = json.loads(json.dumps(line))
    predicted, measured = line["rows"]["run/training time"]
    assert predicted == pytest.approx(measured)
    assert (line["model"]["width"], line["model"]["vocabulary"], line["workload"]["steps"]) == (128, 1000, 90)
    assert line["device"] == "Ideal CPU"
    assert (line["format"], line["torch"], line["trainwright"], line["cores"]) == (2, "2.13.0", "0.1.0", 4)
