from trainwright.planner import explain_time as module
from trainwright.planner.explain import EXPLAINERS


def test_its_names_are_registered():
    table = module.TIME
    assert table and table.items() <= EXPLAINERS.items()
