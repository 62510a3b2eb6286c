import pytest

from trainwright.hardware.models import model
from trainwright.planner import explain_run as module
from trainwright.planner.cluster_plan import planned
from trainwright.planner.explain import EXPLAINERS
from trainwright.planner.question import Question, resolve


def test_its_names_are_registered():
    table = module.RUN
    assert table and table.items() <= EXPLAINERS.items()


def test_what_is_beside_the_steps_is_what_other_holds_beside_idle_time():
    found = planned(resolve(Question(model=model("llama3-70b"), tokens=15 * 10**12, on="64x8xh100-sxm")))
    parts = module.beside_steps(found.run)
    assert [seconds for _, seconds in parts] == sorted((seconds for _, seconds in parts), reverse=True)
    estimate = found.plan.estimate
    idle = estimate.phases.other * found.run.steps
    assert sum(seconds for _, seconds in parts) == pytest.approx(estimate.run_phases.other - idle, rel=1e-9)
    assert parts[0][0].startswith("overhead of long runs")
