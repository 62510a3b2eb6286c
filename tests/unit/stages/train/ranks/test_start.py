"""Starting ranks, and who of them is named as the first to end; whole runs are in ``tests/system/test_ranks.py``."""

from __future__ import annotations

import json
import signal
import socket

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from trainwright.artifact.events import Events
from trainwright.stages.train.ranks.signals import LEFT_TO_THE_AGENT
from trainwright.stages.train.ranks.start import LOOPBACK, _configuration, _died
from trainwright.stages.train.ranks.watch import Watch


def watch_of(folder) -> Watch:
    events = Events(None, run="x")
    return Watch(folder=folder, stacks=folder, ranks=range(4), hang_after_s=9.0, slow_factor=2.0, events=events)


@pytest.mark.parametrize(("code", "how"), [(-signal.SIGKILL, "by SIGKILL"), (3, "with exit code 3")])
def test_a_rank_that_died_is_named(tmp_path, code: int, how: str) -> None:
    failure = ProcessFailure(local_rank=2, pid=1, exitcode=code, error_file=str(tmp_path / "none"))
    error = _died(ChildFailedError("train", {2: failure}), watch_of(tmp_path))
    host = socket.gethostname()
    assert str(error).startswith(f"train: rank 2 on {host} ended {how}, before its first step; all ranks were ended")
    assert "run the same command" in str(error)


def test_who_was_killed_is_told_from_those_whose_connections_closed(tmp_path) -> None:
    failures = {}
    for rank, text in ((0, "Connection closed by peer"), (1, "Broken pipe")):
        told = tmp_path / f"{rank}.json"
        told.write_text(json.dumps({"message": {"message": text, "extraInfo": {"timestamp": 1}}}))
        failures[rank] = ProcessFailure(local_rank=rank, pid=1, exitcode=1, error_file=str(told))
    failures[3] = ProcessFailure(local_rank=3, pid=1, exitcode=-signal.SIGKILL, error_file=str(tmp_path / "none"))
    assert _died(ChildFailedError("train", failures), watch_of(tmp_path)).rank == 3


def test_ranks_of_one_host_meet_on_the_loopback_only() -> None:
    configuration = _configuration(4)
    assert (configuration.nproc_per_node, configuration.max_nodes) == (4, 1)
    assert configuration.rdzv_endpoint == f"{LOOPBACK}:0"
    assert configuration.local_addr == LOOPBACK == "127.0.0.1"
    assert configuration.signals_to_handle == LEFT_TO_THE_AGENT
