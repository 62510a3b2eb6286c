from trainwright.planner import explain_run as module
from trainwright.planner.explain import EXPLAINERS


def test_its_names_are_registered():
    table = module.RUN
    assert table and table.items() <= EXPLAINERS.items()
