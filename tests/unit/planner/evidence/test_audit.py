import json
from dataclasses import replace

import pytest

from fixtures.finished import summary_of
from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.planner.evidence.audit import audit, ledger_line


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


def test_what_was_not_predicted_has_no_ratio(plan):
    perfect = summary_of(plan)
    measured = replace(perfect, step_phases=replace(perfect.step_phases, data_wait=10.0))
    row = next(row for row in audit(plan, measured).rows if (row.group, row.quantity) == ("step", "data_wait"))
    assert (row.predicted, row.measured, row.ratio) == (0.0, 10.0, None)


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
