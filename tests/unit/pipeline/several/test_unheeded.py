"""A recipe's keys that nobody heeds under a launcher are named, with what does it there."""

from __future__ import annotations

import pytest

from trainwright.core.place import Place
from trainwright.pipeline.several.unheeded import WATCHED, unheeded
from trainwright.spec.sections.train import TrainExec

NODES = Place(rank=0, commands=2, host="a", port=1)
TORCHRUN = Place(rank=0, commands=2, host="a", port=1, trains=True, launcher="torchrun")
SRUN = Place(rank=0, commands=2, host="a", port=1, trains=True, launcher="srun")


@pytest.mark.parametrize("place", [NODES, TORCHRUN, SRUN])
def test_what_is_left_as_it_is_needs_no_word(place) -> None:
    assert unheeded(place, TrainExec()) is None
    assert unheeded(place, TrainExec(max_restarts=0, slow_factor=3.0)) is None


def test_each_key_is_named_with_what_does_it_instead() -> None:
    values = {"max_restarts": 3, "elastic": True, "on_oom": "adapt", "hang_after": 20}
    assert values.keys() == set(WATCHED)
    line = unheeded(TORCHRUN, TrainExec(**values))
    assert line is not None
    assert "\n" not in line
    assert all(f"train.exec.{key}" in line for key in values)
    assert line.startswith("torchrun starts the ranks, so that train.exec.max_restarts, ")
    assert "torchrun --max-restarts 3 begins again" in line
    alone = unheeded(SRUN, TrainExec(max_restarts=1))
    assert alone == (
        "srun starts the ranks, so that train.exec.max_restarts does nothing: "
        "sbatch --requeue begins again from the last checkpoint"
    )


def test_nodes_heed_all_of_them() -> None:
    assert unheeded(NODES, TrainExec(max_restarts=3, elastic=True, on_oom="adapt", hang_after=20)) is None
