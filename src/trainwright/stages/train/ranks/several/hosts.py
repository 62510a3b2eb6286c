"""``Hosts``: what the commands of several hosts tell each other while their ranks run, so that they act alike.

Each host watches its own ranks. A rank that stands still may wait for one of another host, so that the watches compare
whom they suspect; when ranks have ended, all commands hear what ended them, and begin again or end together.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore

from trainwright.core.errors import TrainingError, TrainwrightError
from trainwright.stages.train.faults.memory import Change, OutOfMemory
from trainwright.stages.train.ranks.several.meeting import Meeting, ended, exit_code_of
from trainwright.stages.train.ranks.several.store import POLL_S
from trainwright.stages.train.ranks.watch import GoneHost, HostsGone, RankFault, Suspect, Whose

QUIET_S = 30.0
"""A host whose command says nothing for so long is gone; longer where a rank may be silent for longer."""
DONE = "done"
WEIGHT = ("error", "gone", "memory", "fault", "echo", DONE)
"""Which end of a host's ranks explains the others', the first one most: what a user must mend, ..., a closed socket."""


class Hosts:
    """One attempt at a training, as one host sees the others."""

    def __init__(self, here: Meeting, attempt: str, hang_after_s: float) -> None:
        """Begins to listen.

        Args:
            here: where the commands meet.
            attempt: its name, which no other attempt of the meeting has.
            hang_after_s: how long a rank may be silent.
        """
        self._here, self._store = here, PrefixStore(f"hosts-{attempt}", here.store)
        self._quiet_s = max(QUIET_S, hang_after_s)
        self._beats = 0
        now_s = time.monotonic()
        self._heard: dict[int, tuple[int, float]] = dict.fromkeys(range(here.place.commands), (0, now_s))

    def judge(self, suspect: Suspect | None) -> Whose:
        """Tells the others whom this host's watch suspects to hang; returns whose fault it is.

        Returns:
            ``ours``: all hosts' ranks stand still, and this one's suspect is the furthest behind; ``others``: ranks of
            another host have ended, or the host is gone; else ``nobody``'s so far.
        """
        try:
            self._beats += 1
            word = {"beat": self._beats, "host": socket.gethostname(), "suspect": suspect}
            self._store.set(f"word/{self._here.place.rank}", json.dumps(word))
            if any(self._ended(rank) not in (None, DONE) for rank in self._others()):
                return "others"
            if suspect is None:
                return "nobody"
            words = [self._word(rank) for rank in self._others()]
            if any(self._gone(rank) for rank in self._others()):
                return "others"
        except RuntimeError:  # torch's DistError: the first command is gone, and the meeting place with it
            return "others"
        theirs = [tuple(word["suspect"]) for word in words if word.get("suspect") is not None]
        return "ours" if len(theirs) == len(words) and all(suspect < each for each in theirs) else "nobody"

    def agree(self, failure: TrainwrightError | None) -> None:
        """Tells the others how this host's ranks ended, and raises what ended the ranks of all; returns if all is done.

        Raises:
            RankFault: a rank of some host died or hung; the same on all hosts.
            OutOfMemory: likewise.
            HostsGone: other hosts' commands say nothing any more; the same on all that are here.
            TrainwrightError: what a user must mend.
        """
        place = self._here.place
        self.tell(_outcome(failure))
        with self._here.asking():
            if place.leads:
                self._store.set("verdict", json.dumps(self._verdict()))
            while not self._store.check(["verdict"]):
                time.sleep(POLL_S)
            verdict = json.loads(self._store.get("verdict"))
        if verdict["kind"] == DONE:
            return
        ours = None if failure is None else _outcome(failure)["kind"]
        if any(host["node"] == place.rank for host in verdict.get("gone", ())):
            raise TrainingError(
                "this node said nothing for {quiet_s:g} s: the others took it for gone", quiet_s=self._quiet_s
            )
        if failure is not None and (verdict["node"] == place.rank or ours == verdict["kind"] == "error"):
            raise failure
        raise _error(verdict)

    def tell(self, outcome: Mapping[str, Any]) -> None:
        """Tells how this host's ranks ended."""
        with self._here.asking():
            self._store.set(f"end/{self._here.place.rank}", json.dumps(outcome))

    def end(self, why: BaseException) -> None:
        """Tells the others, where they are still there, that this command ends for a reason of its own."""
        try:
            self.tell(_told(why))
        except TrainingError:
            return

    def _verdict(self) -> dict[str, Any]:
        """Returns the end of the ranks of the host that explains the others', with its number; waits for all.

        Of hosts that are gone it names all, so that one restart leaves them out.
        """
        waited = set(range(self._here.place.commands))
        ends: list[dict[str, Any]] = []
        while waited:
            for rank in sorted(waited):
                end = self._end(rank)
                if end is None and self._gone(rank):
                    end = {"kind": "gone", "host": self._word(rank).get("host", "its host")}
                if end is not None:
                    ends.append({**end, "node": rank, "came": self._here.members[rank]})
                    waited.discard(rank)
            time.sleep(POLL_S if waited else 0.0)
        first = min(ends, key=lambda end: (WEIGHT.index(end["kind"]), end["node"]))
        if first["kind"] != "gone":
            return first
        gone = sorted((end for end in ends if end["kind"] == "gone"), key=lambda end: end["node"])
        return {**first, "gone": [{key: end[key] for key in ("node", "came", "host")} for end in gone]}

    def _others(self) -> list[int]:
        return [rank for rank in range(self._here.place.commands) if rank != self._here.place.rank]

    def _word(self, rank: int) -> dict[str, Any]:
        said: dict[str, Any] = self._read(f"word/{rank}") or {"beat": 0}
        if said["beat"] != self._heard[rank][0]:
            self._heard[rank] = said["beat"], time.monotonic()
        return said

    def _gone(self, rank: int) -> bool:
        """Returns whether a command that has not said how its ranks ended says nothing any more."""
        self._word(rank)
        quiet_s = time.monotonic() - self._heard[rank][1]
        return rank != self._here.place.rank and quiet_s > self._quiet_s and self._end(rank) is None

    def _ended(self, rank: int) -> str | None:
        end = self._end(rank)
        return None if end is None else str(end["kind"])

    def _end(self, rank: int) -> dict[str, Any] | None:
        return self._read(f"end/{rank}")

    def _read(self, key: str) -> dict[str, Any] | None:
        if not self._store.check([key]):
            return None
        said: dict[str, Any] = json.loads(self._store.get(key))
        return said


def end_together(here: Meeting, attempt: str, hang_after_s: float, launch: Callable[[Hosts], None]) -> None:
    """Launches this host's ranks, and ends as those of all hosts do; raises as ``Hosts.agree``."""
    hosts, failure = Hosts(here, attempt, hang_after_s), None
    try:
        launch(hosts)
    except TrainwrightError as error:
        failure = error
    except BaseException as error:
        hosts.end(error)
        raise
    hosts.agree(failure)


def _outcome(failure: TrainwrightError | None) -> dict[str, Any]:
    """Returns what ended ranks, in words that cross to another host."""
    if failure is None:
        return {"kind": DONE}
    said = {"what": failure.what, "seen": failure.seen, "expected": failure.expected, "fix": failure.fix}
    if isinstance(failure, OutOfMemory):
        change = None if failure.change is None else asdict(failure.change)
        return {"kind": "memory", **said, "change": change}
    if isinstance(failure, RankFault):
        return {"kind": "echo" if failure.echo else "fault", **said, "rank": failure.rank}
    return _told(failure)


def _told(why: BaseException) -> dict[str, Any]:
    """Returns what a user must mend, in words, with the exit code of its kind."""
    return {"kind": "error", "what": str(why) or type(why).__name__, "exit_code": exit_code_of(why)}


def _error(verdict: Mapping[str, Any]) -> TrainingError:
    """Returns the error that another host's ranks ended with."""
    kind, came = verdict["kind"], verdict["came"]
    if kind in ("fault", "echo"):
        return RankFault("{said}", rank=verdict["rank"], seen=verdict["seen"], fields={"said": verdict["what"]})
    if kind == "memory":
        where = {"seen": verdict["seen"], "expected": verdict["expected"], "fix": verdict["fix"]}
        error = OutOfMemory("{said}", where="train", said=verdict["what"], **where)
        error.change = None if verdict["change"] is None else Change(**verdict["change"])
        return error
    if kind == "gone":
        return HostsGone([GoneHost(**host) for host in verdict["gone"]])
    return ended(f"node {came}", verdict["what"], verdict["exit_code"])
