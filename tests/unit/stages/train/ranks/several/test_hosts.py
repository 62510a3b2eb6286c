"""Hosts that train together: whom they suspect, and what they agree that ended their ranks; threads of one process."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

from trainwright.core.errors import DataError, TrainingError
from trainwright.stages.train.faults.memory import Change, OutOfMemory
from trainwright.stages.train.ranks.several import hosts as module
from trainwright.stages.train.ranks.several.hosts import Hosts, end_together
from trainwright.stages.train.ranks.several.meeting import Meeting
from trainwright.stages.train.ranks.watch import HostsGone, RankFault


def fault(rank: int, *, echo: bool = False) -> RankFault:
    error = RankFault("rank {rank} ended", rank=rank, seen="a stack", fields={})
    error.echo = echo
    return error


def ending(each, failures: dict[int, BaseException]) -> list[BaseException | None]:
    def act(here: Meeting) -> None:
        def launch(hosts: Hosts) -> None:
            if here.place.rank in failures:
                raise failures[here.place.rank]

        end_together(here, "t-1", 9.0, launch)

    return [future.exception(60) for future in each(act)]


def test_all_end_well_together(each) -> None:
    assert ending(each, {}) == [None] * 3


def test_the_rank_that_ended_by_itself_is_named_everywhere(each) -> None:
    errors = ending(each, {0: fault(1, echo=True), 1: fault(2), 2: fault(5, echo=True)})
    assert all(isinstance(error, RankFault) and error.rank == 2 for error in errors)
    assert {str(error) for error in errors} == {str(fault(2))}


def test_a_fault_of_one_host_reaches_those_that_had_ended_well(each) -> None:
    errors = ending(each, {0: fault(0)})
    assert all(isinstance(error, RankFault) and error.rank == 0 for error in errors)


def test_memory_that_ended_on_one_host_changes_the_plan_of_all(each) -> None:
    error = OutOfMemory("out of memory in step {step}", where="train", seen="9 GiB", fix="set less", step=3)
    error.change = Change(micro_batch=2, recompute="full", slowdown=1.25)
    errors = ending(each, {1: error, 2: fault(4)})
    assert all(isinstance(each, OutOfMemory) and each.change == error.change for each in errors)
    assert {str(each) for each in errors} == {str(error)}


def test_what_a_user_must_mend_is_raised_where_it_was_and_told_elsewhere(each) -> None:
    first, second, third = ending(each, {1: DataError("a shard is damaged"), 2: fault(4, echo=True)})
    assert str(second) == "a shard is damaged"
    assert isinstance(second, DataError)
    for other in (first, third):
        assert isinstance(other, TrainingError)
        assert not isinstance(other, RankFault), "it would come again"
        assert str(other) == "the command of node 1 ended: a shard is damaged"
        assert other.exit_code == DataError.exit_code


def test_a_command_that_is_interrupted_ends_the_others(each) -> None:
    first, second, _ = ending(each, {1: KeyboardInterrupt()})
    assert isinstance(second, KeyboardInterrupt)
    assert str(first) == "the command of node 1 ended: KeyboardInterrupt"


def test_a_host_that_is_gone_is_named(each, monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.5)

    def act(here: Meeting) -> None:
        hosts = Hosts(here, "t-1", 0.1)
        hosts.judge(None)
        if here.place.rank != 2:
            hosts.agree(None)

    first, second, _ = [future.exception(60) for future in each(act)]
    for error in (first, second):
        assert isinstance(error, HostsGone) and [host.node for host in error.hosts] == [2]
        assert f"no word any more of the command of node 2 on {socket.gethostname()}; all" in str(error)
        assert "on every node" in str(error)


def test_a_second_host_that_is_gone_has_the_number_that_it_came_with(each, monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.5)

    def act(here: Meeting) -> None:
        if here.place.rank == 1:
            return
        hosts = Hosts(here.without({1}), "t-2", 0.1)
        hosts.judge(None)
        if here.place.rank == 0:
            hosts.agree(None)

    error = each(act)[0].exception(60)
    assert isinstance(error, HostsGone)
    assert [(host.node, host.came) for host in error.hosts] == [(1, 2)]
    assert str(error).startswith("train: no word any more of the command of node 2 on ")


def test_hosts_that_are_gone_at_once_are_named_together(each, monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.5)

    def act(here: Meeting) -> None:
        hosts = Hosts(here, "t-1", 0.1)
        hosts.judge(None)
        if here.place.rank == 0:
            hosts.agree(fault(0, echo=True))

    error = each(act)[0].exception(60)
    assert isinstance(error, HostsGone)
    assert [host.node for host in error.hosts] == [1, 2]


def test_a_host_that_comes_back_hears_that_it_was_taken_for_gone(each, monkeypatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.5)
    decided = threading.Barrier(3)

    def act(here: Meeting) -> None:
        hosts = Hosts(here, "t-1", 0.1)
        hosts.judge(None)
        if here.place.rank == 2:
            decided.wait(60)  # frozen meanwhile
            hosts.agree(fault(5, echo=True))
        try:
            hosts.agree(None)
        finally:
            decided.wait(60)

    third = each(act)[2].exception(60)
    assert isinstance(third, TrainingError) and not isinstance(third, HostsGone | RankFault)
    assert str(third) == "this node said nothing for 0.5 s: the others took it for gone"


def judged(each, suspects: list[tuple[int, int, int] | None]) -> list[str]:
    said = threading.Barrier(3)

    def act(here: Meeting) -> str:
        hosts = Hosts(here, "t-1", 9.0)
        hosts.judge(suspects[here.place.rank])
        said.wait(60)
        return hosts.judge(suspects[here.place.rank])

    return [str(future.result(60)) for future in each(act)]


@pytest.mark.parametrize(
    ("suspects", "whose"),
    [
        ([(50, 5, 0), (48, 5, 2), (50, 5, 4)], ["nobody", "ours", "nobody"]),
        ([(50, 5, 0), None, (50, 5, 4)], ["nobody"] * 3),
        ([(50, 5, 0), (50, 5, 2), (-1, 5, 4)], ["nobody", "nobody", "ours"]),
        ([None] * 3, ["nobody"] * 3),
    ],
)
def test_of_suspects_of_all_hosts_the_one_furthest_behind_hangs(each, suspects, whose) -> None:
    assert judged(each, suspects) == whose


def test_ranks_that_ended_elsewhere_are_heard_of(each) -> None:
    told = threading.Barrier(3)

    def act(here: Meeting) -> str:
        hosts = Hosts(here, "t-1", 9.0)
        if here.place.rank == 1:
            hosts.tell({"kind": "fault", "rank": 2})
        if here.place.rank == 2:
            hosts.tell({"kind": "done"})
        told.wait(60)
        return hosts.judge(None)

    assert [future.result(60) for future in each(act)] == ["others", "nobody", "others"]


def test_without_the_first_command_there_is_nobody_to_wait_for(place, monkeypatch) -> None:
    class Gone:
        def set(self, *_: object) -> None:
            raise RuntimeError("connection reset")

    hosts = Hosts(Meeting(replace(place, commands=1), 5.0), "t-1", 9.0)
    monkeypatch.setattr(hosts, "_store", Gone())
    assert hosts.judge(None) == "others"
