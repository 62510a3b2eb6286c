"""``Meeting``: where the commands of one training find each other, compare what they are, and hear what to train.

A key-value store of torch's that the launcher or the command of rank 0 serves. The first command leads: it plans,
prepares data and writes artefacts as a command alone does. The others wait for its calls, each to one training.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import packages_distributions, version
from typing import Any

import torch
from torch.distributed.distributed_c10d import PrefixStore, Store

from trainwright import __version__
from trainwright.core.errors import (
    MachineError,
    RecipeError,
    RecipeErrors,
    TrainingError,
    TrainwrightError,
    in_one_line,
)
from trainwright.core.place import Place
from trainwright.core.registry import references_in
from trainwright.core.source_digest import code_of, source_digest
from trainwright.runtime.device import native_bf16
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.ranks.quiet import quiet_loggers
from trainwright.stages.train.ranks.several.store import POLL_S, reached

FAREWELL_S = 10.0
"""How long the first command waits for the others to hear its end: they may have ended by themselves."""
VERDICT_S = 30.0
"""How much longer than the time limit others wait for the first command's word: it too waits so long."""
TOLD = 20
"""Differences of one command that are told at most."""
DIGITS = 12
"""Of a digest of code, as they are told and compared."""


class Meeting:
    """One command's view of the meeting place."""

    def __init__(self, place: Place, limit_s: float) -> None:
        """Comes there.

        Raises:
            MachineError: nobody serves the place within ``limit_s`` seconds, its port is in use, or another command has
                this number.
        """
        self.place, self.limit_s = place, limit_s
        self.store: Store = PrefixStore(f"trainwright-{place.attempt}", reached(place, limit_s))
        self._take_number()
        self.members = tuple(range(place.commands))
        """The number that each one came with."""

    def _take_number(self) -> None:
        me = f"process {os.getpid()} of {socket.gethostname()}"
        holder = self.store.compare_set(f"here/{self.place.rank}", "", me).decode()
        if holder != me:
            raise MachineError(
                "another command is {noun} {rank} here",
                where=self.place.endpoint,
                seen=holder,
                expected="one command for each number",
                fix="start this one with its own --node-rank, or end the other one",
                noun=self.place.noun,
                rank=self.place.rank,
            )

    def without(self, nodes: Collection[int]) -> Meeting:
        """Returns the same place as those see it who go on without other nodes: their numbers move up.

        Nobody waits for those nodes any more, and no other training can begin in this meeting.
        """
        place = self.place
        for node in nodes:
            self.store.set(f"gone/{self.members[node]}", "")
        fewer = copy.copy(self)
        fewer.members = tuple(member for node, member in enumerate(self.members) if node not in nodes)
        before = sum(node < place.rank for node in nodes)
        fewer.place = replace(place, commands=len(fewer.members), rank=place.rank - before)
        if place.leads:
            before_these = f"{self._left_out()}, " if self._left_out() else ""
            self.store.set("left", before_these + ", ".join(str(self.members[node]) for node in sorted(nodes)))
        return fewer

    def _left_out(self) -> str:
        """Returns the numbers that nodes came with which were left out; empty where none was."""
        return self.store.get("left").decode() if self.store.check(["left"]) else ""

    def agree(self, about: str, facts: Mapping[str, str]) -> None:
        """Compares what each command says of itself with what the first one says; all end where one differs.

        Args:
            about: a name that no other comparison of this meeting has.
            facts: what is compared, by name.

        Raises:
            RecipeErrors: each difference, with rank, host and both values.
            MachineError: a command did not come within the time limit.
        """
        mine = {"host": socket.gethostname(), "facts": dict(facts)}
        self.store.set(f"{about}/{self.place.rank}", json.dumps(mine))
        if self.place.leads:
            self._all_there(about)
            said = [json.loads(self.store.get(f"{about}/{rank}")) for rank in range(self.place.commands)]
            self.store.set(f"{about}/verdict", json.dumps(differences(said, self.place.noun)))
        else:
            self._word_of_the_first(f"{about}/verdict")
        problems = json.loads(self.store.get(f"{about}/verdict"))
        if problems:
            raise RecipeErrors(RecipeError(**problem) for problem in problems)

    def of_the_first(self, about: str, mine: str) -> str:
        """Returns what the first command says, where a file that all share may look otherwise to others.

        Args:
            about: a name that nothing else of this meeting has.
            mine: what this command would say.

        Raises:
            TrainingError: the first command is gone.
        """
        with self.asking():
            if self.place.leads:
                self.store.set(about, mine)
            self._wait_for(about)
            return self.store.get(about).decode()

    def call(self, task: Mapping[str, Any]) -> str:
        """Tells the others what to train next; returns the training's name among those of this meeting.

        Raises:
            MachineError: a node was left out of a training before.
        """
        if nodes := self._left_out():
            raise MachineError(
                "left out of the training before this one: node {nodes}",
                where=self.place.endpoint,
                nodes=nodes,
                fix="run the same command with fewer --nodes and a smaller train.exec.layout: what is done is kept",
            )
        number = self.store.add("calls", 1)
        self.store.set(f"call/{number}", json.dumps(task))
        return f"training-{number}"

    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each training that the first command calls to, with its name, until it ends well.

        Raises:
            TrainingError: it ended with an error, or went away without a word.
        """
        number = 1
        while True:
            key = f"call/{number}"
            self._wait_for(key, "end")
            if not self.store.check([key]):
                break
            yield f"training-{number}", json.loads(self.store.get(key))
            number += 1
        if (error := self._end()) is not None:
            raise error

    def end(self, why: BaseException | None) -> None:
        """Tells the others that there is nothing more to train, and why if not all is done; waits till they heard."""
        said = None if why is None else {"what": str(why) or in_one_line(why), "exit_code": exit_code_of(why)}
        self.store.set("end", json.dumps(said))
        deadline = time.monotonic() + FAREWELL_S
        came = [rank for rank in range(1, self.place.commands) if self.store.check([f"here/{rank}"])]
        while came and not self.store.check([f"gone/{rank}" for rank in came]) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def leave(self) -> None:
        """Tells the first command that this one needs it no longer."""
        self.store.set(f"gone/{self.place.rank}", "")

    def _end(self) -> TrainingError | None:
        """Returns why the first command ended; None where all is done."""
        said = json.loads(self.store.get("end"))
        return None if said is None else ended(f"{self.place.noun} 0", said["what"], said["exit_code"])

    def _all_there(self, about: str) -> None:
        deadline = time.monotonic() + self.limit_s
        while True:
            came = [rank for rank in range(self.place.commands) if self.store.check([f"{about}/{rank}"])]
            if len(came) == self.place.commands:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        absent = ", ".join(str(rank) for rank in range(self.place.commands) if rank not in came)
        raise MachineError(
            "{came} of {commands} {noun}s came here within {limit_s:g} s; absent: {absent}",
            where=self.place.endpoint,
            fix="start the same command there, or raise train.exec.rendezvous_timeout",
            came=len(came),
            commands=self.place.commands,
            noun=self.place.noun,
            limit_s=self.limit_s,
            absent=absent,
        )

    def _word_of_the_first(self, key: str) -> None:
        deadline = time.monotonic() + self.limit_s + VERDICT_S
        while not self._has(key):
            if self._has("end") and not self._has(key):  # said before it ended, but after it was looked for
                raise self._end() or ended(f"{self.place.noun} 0", "without a word", TrainingError.exit_code)
            if time.monotonic() > deadline:
                raise MachineError(
                    "the command of {noun} 0 said nothing", where=self.place.endpoint, noun=self.place.noun
                )
            time.sleep(POLL_S)

    def _wait_for(self, *keys: str) -> None:
        while not any(self._has(key) for key in keys):
            time.sleep(POLL_S)

    def _has(self, key: str) -> bool:
        with self.asking():
            return self.store.check([key])

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Says within that the first command is gone, where the store no longer answers.

        Raises:
            TrainingError: it is.
        """
        try:
            yield
        except RuntimeError as error:  # torch's DistError: the store is gone with the process that served it
            raise TrainingError(
                "the command of {noun} 0 went away",
                where=self.place.endpoint,
                fix="see what it said last",
                noun=self.place.noun,
            ) from error


@contextmanager
def meeting(place: Place, recipe: Recipe) -> Iterator[Meeting]:
    """Comes to the meeting place, makes sure that all commands are alike, and leaves it in the end.

    Raises:
        MachineError: the place cannot be reached, or not all came, within ``train.exec.rendezvous_timeout``.
        RecipeErrors: the commands differ.
    """
    with quiet_loggers("torch.distributed"):
        here = Meeting(place, recipe.train.exec.rendezvous_timeout)
        error: BaseException | None = None
        try:
            here.agree("start", facts_of(recipe))
            yield here
        except BaseException as raised:
            error = raised
            raise
        finally:
            if not place.leads:
                _leave(here)
            else:
                here.end(error)


def _leave(here: Meeting) -> None:
    try:
        here.leave()
    except RuntimeError:  # the first command is gone: nobody waits for this one
        logging.getLogger(__name__).debug("%s is gone", here.place.endpoint)


def ended(who: str, why: str, exit_code: int) -> TrainingError:
    """Returns the error of a command whose training ended with another one's, and its exit code."""
    error = TrainingError("the command of {who} ended: {error}", who=who, error=why)
    error.exit_code = exit_code
    return error


def exit_code_of(why: BaseException) -> int:
    """Returns the exit code of the command that ends with this; an error that is none of ours counts as training's."""
    return why.exit_code if isinstance(why, TrainwrightError) else TrainingError.exit_code


def facts_of(recipe: Recipe) -> dict[str, str]:
    """Returns what all commands of one training must have in common: versions, code, and the recipe but how it is run.

    Of plug-ins each one's code counts too: a version says nothing of a file that was changed on one host.
    """
    written = recipe.model_dump(mode="json", by_alias=True)
    facts = {"version of trainwright": __version__, "version of torch": torch.__version__} | _plug_ins(written)
    for key, value in _flat("", written):
        if ".exec." not in key or key.startswith(("train.exec.layout", "train.exec.nodes")):
            facts[key] = json.dumps(value)
    if recipe.train.optimizer.name == "muon" and not torch.accelerator.is_available():
        # It says what whole directions are computed in (``model.muon``), by each copy for itself.
        facts["processor for Muon"] = f"{'with' if native_bf16() else 'without'} bf16 products"
    return facts


def _plug_ins(written: dict[str, Any]) -> dict[str, str]:
    """Returns what each plug-in is: the installed package that it belongs to, if any, and its code's digest."""
    parts = {part for _, reference in references_in(written) for part in code_of(reference)}
    installed = packages_distributions() if parts else {}
    facts = {}
    for part in sorted(parts):
        owners = installed.get(part.partition(":")[0].partition(".")[0], [])
        try:
            digest = source_digest(part)
        except RecipeError:  # looks like a plug-in's name and is none, or the command will say so
            continue
        facts[f"code of plug-in {part}"] = ", ".join(
            [*(f"{owner} {version(owner)}" for owner in sorted(set(owners))), f"digest {digest[:DIGITS]}"]
        )
    return facts


def differences(said: list[dict[str, Any]], noun: str) -> list[dict[str, str]]:
    """Returns each fact in which a command differs from the first one, as the fields of an error."""
    first = said[0]
    found = []
    for rank, other in enumerate(said):
        names = first["facts"] | other["facts"]
        differing = [name for name in names if first["facts"].get(name) != other["facts"].get(name)]
        found += [
            {
                "template": f"{noun} {rank} on {other['host']} has another {name} than {noun} 0",
                "seen": other["facts"].get(name, "none"),
                "expected": f"{first['facts'].get(name, 'none')} as on {first['host']}",
            }
            for name in differing[:TOLD]
        ]
    return found


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), each)
    else:
        yield prefix, value
