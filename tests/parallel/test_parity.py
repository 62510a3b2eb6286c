"""Every layout trains as one process does: loss, gradient norm, every gradient, and the weights after some steps.

The truth is the same network on the whole batch in one process, without any of the code that shares work.

Which cases are trained here: each axis and each two of them, each task, optimizer, kind of family and precision; of the
plain settings a layout of one axis has two, a layout of several has one (``parallel.cases.spread``). Every layout in
every setting, for more updates, is ``test_soak_parity``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fixtures.started import start
from parallel.cases import CASES, LATER, Case
from parallel.ranks import main
from trainwright.stages.train.ranks.pipeline.refusals import SPLIT_BACKWARD, splits

pytestmark = pytest.mark.timeout(2700)
"""Of the first test, in which all cases run; a rank that hangs ends them after two minutes."""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, dict[str, float]]:
    """The differences of the chosen cases; the ranks of one size start once, from a process that has torch already."""
    found: dict[str, dict[str, float]] = {}
    asked = {item.callspec.params["case"].name for item in request.session.items if item.path == Path(__file__)}
    chosen = [
        case for case in CASES if case.name in asked and (splits() or case.parallel.schedule not in SPLIT_BACKWARD)
    ]
    for ranks in sorted({case.parallel.ranks for case in chosen}):
        folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
        cases = tuple(case for case in chosen if case.parallel.ranks == ranks)
        start(main, ranks, folder, ranks, str(folder), cases)
        found |= json.loads(Path(folder, "results.json").read_text())
    return found


def shown(case: Case) -> object:
    """A case, which a torch that cannot split backward passes leaves out where its schedule does."""
    old = pytest.mark.skipif(not splits(), reason="this torch does not split backward passes")
    return pytest.param(case, marks=old if case.parallel.schedule in SPLIT_BACKWARD else (), id=case.name)


@pytest.mark.parametrize("case", [shown(case) for case in CASES])
def test_a_layout_trains_as_one_process(case: Case, results: dict[str, dict[str, float]]) -> None:
    differences = results[case.name]
    assert differences.pop("initial weights") == 0, "to the bit"
    assert any(name.startswith("gradient of") for name in differences)
    for name, difference in differences.items():
        exact = case.optimizer == "sgd" or "after" not in name
        assert not math.isnan(difference), name
        assert difference <= (case.tolerance if exact else LATER), name
