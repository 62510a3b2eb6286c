"""What a rank is given reaches its process whole; whole runs are in ``tests/system/test_ranks.py``."""

from __future__ import annotations

import errno
import pickle
import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from fixtures.planned_recipe import plan_of
from trainwright.artifact.events import Events
from trainwright.core.errors import MachineError
from trainwright.stages.train.ranks import rank as module
from trainwright.stages.train.ranks.rank import RankTask, _device, train_as_rank


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


def test_a_restarted_rank_counts_its_time_from_when_the_command_began(make_recipe, tmp_path) -> None:
    recipe, seen = make_recipe(), []

    def work(context, plan, world) -> None:
        seen.append(context.began_s)

    task = RankTask(
        recipe=recipe,
        plan=plan_of(recipe),
        inputs={},
        digests={},
        out=tmp_path,
        root=tmp_path,
        work=work,
        began_s=time.monotonic() - 500.0,
    )
    found = dist.FileStore(str(tmp_path / "store"), 1), 0, 1
    train_as_rank(task, Events(None, run="x"), local_rank=0, found=found)
    assert seen == [task.began_s]


def test_a_full_disk_is_the_machines_fault_whatever_was_written(make_recipe, tmp_path) -> None:
    recipe = make_recipe()

    def work(context, plan, world) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # as closing a log does, without a name

    task = RankTask(recipe=recipe, plan=plan_of(recipe), inputs={}, digests={}, out=tmp_path, root=tmp_path, work=work)
    found = dist.FileStore(str(tmp_path / "store"), 1), 0, 1
    with pytest.raises(MachineError, match=f"{tmp_path}: the disk is full"):
        train_as_rank(task, Events(None, run="x"), local_rank=0, found=found)


def test_ranks_on_processors_share_them() -> None:
    assert _device("cpu", 1) == torch.device("cpu")


@pytest.mark.parametrize(("index", "seen", "used"), [(1, 4, 1), (3, 4, 3), (3, 1, 0)])
def test_a_rank_takes_the_device_of_its_number_or_the_one_that_it_is_shown(monkeypatch, index, seen, used) -> None:
    chosen = []
    monkeypatch.setattr(module, "choose", lambda kind: SimpleNamespace(torch_device=torch.device("cuda")))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: seen)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    assert _device("cuda", index) == torch.device("cuda", used)
    assert chosen == [used]


def test_more_ranks_than_devices_of_a_host_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(module, "choose", lambda kind: SimpleNamespace(torch_device=torch.device("cuda")))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(MachineError, match=r"no device is left for rank 2 of this host.*seen 2 of cuda"):
        _device("cuda", 2)


@pytest.mark.cuda
def test_each_rank_has_the_device_of_its_number() -> None:
    assert _device("cuda", 0) == torch.device("cuda", 0)
