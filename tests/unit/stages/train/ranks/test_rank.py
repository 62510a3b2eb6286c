"""What a rank is given reaches its process whole; whole runs are in ``tests/system/test_ranks.py``."""

from __future__ import annotations

import pickle

import pytest
import torch

from fixtures.planned_recipe import plan_of
from trainwright.stages.train.ranks.rank import RankTask, _device


def test_a_ranks_task_survives_the_way_to_its_process(make_recipe, tmp_path) -> None:
    recipe = make_recipe(optimizer={"name": "muon", "muon_lr": 0.01})
    task = RankTask(
        recipe=recipe,
        plan=plan_of(recipe),
        inputs={"dataset": tmp_path},
        digests={"dataset": "abc"},
        out=tmp_path / "out",
        root=tmp_path,
    )
    assert pickle.loads(pickle.dumps(task)) == task


def test_ranks_on_processors_share_them() -> None:
    assert _device("cpu", 1) == torch.device("cpu")


@pytest.mark.cuda
def test_each_rank_has_the_device_of_its_number() -> None:
    assert _device("cuda", 0) == torch.device("cuda", 0)
