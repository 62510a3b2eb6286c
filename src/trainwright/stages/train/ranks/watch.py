"""Watches the ranks of this host from the process that started them: names who hangs, ends all of them.

A rank that is stopped says nothing any more; one that is stuck says that it is alive and does not move, like those that
wait for it: it is the one that came to the fewest collectives.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil

from trainwright.artifact.events import Events
from trainwright.artifact.store import writing
from trainwright.core.errors import MachineError, TrainingError, in_one_line
from trainwright.core.units import format_seconds
from trainwright.runtime.faults.beat import State, heard, innermost, interval_s, stack_of
from trainwright.spec.measures import STEP_PHASES
from trainwright.stages.train.ranks.lag import Lag

GO_ON = "run the same command again"
"""It goes on from the last checkpoint, or begins anew where there is none yet."""
AFTER_A_STEP = frozenset(("evaluate", "checkpoint"))
"""Phases that belong to the updates made, not to the next one."""
TIMES_THE_LONGEST = 3.0
"""A phase that takes as long as several of the longest so far is no hang yet."""
STACKS_WITHIN_S = 3.0
PROBE_BYTES = 65536
"""More than any rank says of itself."""
GRACE_S = 5.0
"""How long ranks may live on without one that died: most end by themselves when its connections close."""


Suspect = tuple[int, int, int]
"""How far a rank came that may hang: collectives (-1: it is silent), step, its number; of several the least hangs."""
Whose = Literal["ours", "others", "nobody"]


class Others(Protocol):
    """The watches of other hosts."""

    def judge(self, suspect: Suspect | None) -> Whose:
        """Returns whether this host's suspect hangs, as far as the others know, or ranks of theirs have ended."""


class RankFault(TrainingError):
    """A rank died, hangs or was ended: the job can go on from its last checkpoint.

    ``echo``: because a rank of another host was gone.
    """

    echo = False

    def __init__(self, template: str, *, rank: int, seen: str | None, fields: Mapping[str, object]) -> None:
        named: dict[str, Any] = {"rank": rank, **fields}
        super().__init__(template, where="train", seen=seen, fix=GO_ON, **named)
        self.rank = rank


@dataclass(frozen=True, slots=True)
class GoneHost:
    """A host whose command says nothing any more.

    Attributes:
        node: its number among those that were still here.
        came: the number that its command came with.
        host: its name.
    """

    node: int
    came: int
    host: str


class HostsGone(TrainingError):
    """Commands of other hosts say nothing any more: with fewer hosts the job can go on."""

    def __init__(self, hosts: Sequence[GoneHost]) -> None:
        super().__init__(
            "no word any more of the command of {gone}; all ranks were ended",
            where="train",
            fix=GO_ON + ", on every node",
            gone=", ".join(f"node {each.came} on {each.host}" for each in hosts),
        )
        self.hosts = tuple(hosts)


@dataclass(kw_only=True)
class Watch:
    """The ranks of this host.

    Attributes:
        folder: where they say how they are.
        stacks: where stacks are kept for people.
        hang_after_s: how long a rank may be silent, or stand still in a step.
        slow_factor: how many times the others' time makes a straggler.
        events: where stragglers are told.
        others: hosts whose ranks train with these; None: there are none.
        fault: of the rank that was found to hang, or of the disk where ranks cannot say how they are.
        first_dead: the rank that was first seen to be gone without a word.
        ended_for_others: ranks were ended because some of another host had.
    """

    folder: Path
    stacks: Path
    ranks: Sequence[int]
    hang_after_s: float
    slow_factor: float
    events: Events
    others: Others | None = None
    fault: RankFault | MachineError | None = None
    first_dead: int | None = None
    ended_for_others: bool = False
    _longest_s: float = 0.0
    _told: set[int] = field(default_factory=set)
    _dead_since_s: float | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches from a thread for a while."""
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, ended: threading.Event) -> None:
        lag = Lag(self.ranks, self.slow_factor)
        while not ended.wait(interval_s(self.hang_after_s)) and self.fault is None:
            states = self.states()
            self._name_stragglers(lag.add({rank: state.arrivals for rank, state in states.items()}), states)
            # Ranks that wait for one that has ended do not hang: the agent ends them, or we do where it takes too long.
            all_live = all(_runs(state.pid) and not state.done for state in states.values())
            now_s = time.monotonic()
            hanging = self.hanging(states, now_s) if all_live else []
            whose = self._whose(hanging, states, now_s)
            if whose == "ours":
                self.fault = self._refused() or self._explain(hanging[0], states)
                _end(states)
            elif whose == "others" or self._outlived(states):
                self.ended_for_others = self.ended_for_others or whose == "others"
                _end(states)

    def _whose(self, hanging: Sequence[int], states: Mapping[int, State], now_s: float) -> Whose:
        """Returns whose rank hangs: of ranks that stand still that may be one of another host's."""
        if self.others is None:
            return "ours" if hanging else "nobody"
        if not hanging:
            return self.others.judge(None)
        state = states[hanging[0]]
        silent_s = now_s - state.alive_s
        came = -1 if silent_s > self.hang_after_s / 2 else state.collectives
        whose = self.others.judge((came, state.step, hanging[0]))
        return "ours" if whose == "nobody" and silent_s > self.hang_after_s else whose

    def states(self) -> dict[int, State]:
        """Returns the last word of each rank that has said one."""
        words = {rank: heard(self.folder, rank) for rank in self.ranks}
        return {rank: state for rank, state in words.items() if state is not None}

    def hanging(self, states: Mapping[int, State], now_s: float) -> list[int]:
        """Returns ranks that hang, the most likely first; empty while all is well."""
        states = {rank: state for rank, state in states.items() if not state.done}
        silent = sorted((state.alive_s, rank) for rank, state in states.items())
        if not silent:
            return []
        if now_s - silent[0][0] > self.hang_after_s:
            return [rank for _, rank in silent]
        limit_s = max(self.hang_after_s, TIMES_THE_LONGEST * self._longest_s)
        still = []
        for rank, state in states.items():
            stands_s = now_s - state.progressed_s
            # An evaluation or a checkpoint takes what it takes.
            if state.phase not in STEP_PHASES or not state.steps_here:
                continue
            if stands_s > limit_s:
                still.append(rank)
            elif now_s - state.alive_s < self.hang_after_s / 2:
                self._longest_s = max(self._longest_s, stands_s if stands_s < self.hang_after_s else 0.0)
        if len(still) < len(states):
            return []
        if now_s - silent[0][0] > self.hang_after_s / 2:  # silent, and the others stand still: it is that one
            return [rank for _, rank in silent]
        return sorted(still, key=lambda rank: (states[rank].collectives, states[rank].step, rank))

    def died(self, rank: int, how: str, reason: str | None) -> RankFault:
        """Returns the error of a rank that ended by itself."""
        state = self.states().get(rank)
        return RankFault(
            "rank {rank} on {host} ended {how}{place}; all ranks were ended",
            rank=rank,
            seen=reason,
            fields={"host": socket.gethostname(), "how": how, "place": _place(state, "last heard in")},
        )

    def _refused(self) -> MachineError | None:
        """Returns why ranks cannot say how they are: the disk takes nothing where they do; None where it does."""
        try:
            with writing(self.folder, field="TMPDIR"):
                (self.folder / "probe").write_bytes(bytes(PROBE_BYTES))
        except MachineError as error:
            return error
        return None

    def _explain(self, rank: int, states: Mapping[int, State]) -> RankFault:
        state = states[rank]
        now_s = time.monotonic()
        silent_s, still_s = now_s - state.alive_s, now_s - state.progressed_s
        what = "says nothing for" if silent_s > self.hang_after_s / 2 else "stands still for"
        for other in states.values():
            _ask_for_stacks(other.pid)
        self._wait_for_stacks(states)
        stack = innermost(stack_of(self.folder, rank).read_text(errors="replace"), state.main_thread)
        return RankFault(
            "rank {rank} on {host} hangs: it {what} {seconds}{place}; all ranks were ended; {stacks}",
            rank=rank,
            seen=stack or None,
            fields={
                "host": socket.gethostname(),
                "what": what,
                "seconds": format_seconds(max(silent_s, still_s)),
                "place": _place(state),
                "stacks": self._keep_stacks(states),
            },
        )

    def _wait_for_stacks(self, states: Mapping[int, State]) -> None:
        """Waits until all ranks have written theirs, which grow line by line, the main thread's last."""
        deadline_s, before = time.monotonic() + STACKS_WITHIN_S, [0]
        while time.monotonic() < deadline_s:
            sizes = [_size(stack_of(self.folder, each)) for each in states]
            if all(sizes) and sizes == before:
                return
            before = sizes
            time.sleep(0.05)

    def _keep_stacks(self, states: Mapping[int, State]) -> str:
        """Keeps every rank's stacks for people; returns where, or why not: ranks are ended all the same."""
        try:
            self.stacks.mkdir(parents=True, exist_ok=True)
            for each in states:
                shutil.copyfile(stack_of(self.folder, each), self.stacks / f"rank-{each}.txt")
        except OSError as error:
            return f"their stacks were not kept: {in_one_line(error)}"
        return f"stacks of all in {self.stacks}"

    def _name_stragglers(self, found: Mapping[int, float], states: Mapping[int, State]) -> None:
        for rank, times in found.items():
            if rank not in self._told:
                self._told.add(rank)
                self.events.message(
                    f"rank {rank} on {socket.gethostname()} falls behind: it needs {times:.1f} times the others' time "
                    f"between collectives{_place(states[rank])}"
                )

    def _outlived(self, states: Mapping[int, State]) -> bool:
        """Returns whether ranks live on, though one of them has been dead for a while."""
        dead = [rank for rank, state in states.items() if not _runs(state.pid) and not state.done]
        if dead and self.first_dead is None:
            self.first_dead = dead[0]
        self._dead_since_s = (self._dead_since_s or time.monotonic()) if dead else None
        return self._dead_since_s is not None and time.monotonic() - self._dead_since_s > GRACE_S


def _place(state: State | None, stood: str = "in") -> str:
    """Returns where a rank stood, in words; what was heard of one that died may be a second older than its end."""
    if state is None or not state.phase:
        return ", before its first step"
    last = f", last collective {state.collective} (number {state.collectives})" if state.collective else ""
    if state.phase in AFTER_A_STEP:
        return f", {stood} {state.phase} after step {state.step}{last}"
    phase = "" if state.phase == "other" else f"{state.phase} of "
    return f", {stood} {phase}step {state.step + 1}{last}"


def _ask_for_stacks(pid: int) -> None:
    """Asks a process for its stacks; one that is stopped must run to answer, and is ended right after."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        stopped = psutil.Process(pid).status() == psutil.STATUS_STOPPED
        os.kill(pid, signal.SIGUSR2)
        if stopped:
            os.kill(pid, signal.SIGCONT)


def _end(states: Mapping[int, State]) -> None:
    for state in states.values():
        if not state.done:
            with suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
