"""Starting ranks: what they report reaches the starter; whole runs are in ``tests/system/test_ranks.py``."""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import socket

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from trainwright.artifact.events import Events
from trainwright.core.errors import DataError
from trainwright.spec.event import Event
from trainwright.stages.train.ranks.signals import LEFT_TO_THE_AGENT
from trainwright.stages.train.ranks.start import LOOPBACK, _configuration, _died, _listening, _quiet_agent
from trainwright.stages.train.ranks.watch import Watch


def watch_of(folder) -> Watch:
    events = Events(None, run="x")
    return Watch(folder=folder, stacks=folder, ranks=range(4), hang_after_s=9.0, slow_factor=2.0, events=events)


def test_events_and_errors_of_ranks_are_told_apart() -> None:
    reports = multiprocessing.get_context("spawn").SimpleQueue()
    seen: list[Event] = []
    errors: list = []
    event = Event(run="x", t_s=1.0, kind="metric", name="train/loss", value=2.0, step=3)
    with _listening(reports, Events(None, run="x", listeners=(seen.append,)), errors):
        reports.put(event)
        reports.put(DataError("a shard is damaged", where="tokens-0"))
        reports.put(event)
    assert seen == [event, event]
    assert [str(error) for error in errors] == [str(DataError("a shard is damaged", where="tokens-0"))]


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


@pytest.mark.parametrize("module", ["agent.server.api", "multiprocessing.api"])
def test_torchs_agent_says_nothing_of_its_own(module: str) -> None:
    logger = logging.getLogger(f"torch.distributed.elastic.{module}")
    assert logger.isEnabledFor(logging.WARNING)
    with _quiet_agent():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.WARNING)
