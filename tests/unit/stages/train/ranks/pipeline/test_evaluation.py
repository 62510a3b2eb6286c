"""Every rank of a pipeline has the result of an evaluation, and hears why it failed."""

from __future__ import annotations

import pytest

from fixtures.pipeline_ranks import LAYOUTS, OPTIONS, TASK, network
from trainwright.artifact.shards import TokenDataset

pytestmark = pytest.mark.slow
SCHEDULES = [parallel.schedule for parallel in LAYOUTS]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_rank_measures_what_one_process_does(seen, dataset, schedule) -> None:
    split = TokenDataset.open(dataset.path).splits["validation"]
    truth = {name: metric.value for name, metric in TASK.evaluate(network(), split, OPTIONS).metrics.items()}
    for rank in seen:
        assert rank[schedule]["metrics"] == pytest.approx(truth, rel=1e-5)
        assert rank[schedule]["training"] is True


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_error_of_the_rank_that_measures_is_raised_on_all(seen, schedule) -> None:
    first, second = (rank[schedule]["error"] for rank in seen)
    assert "measured in vain" in first
    assert first == second
