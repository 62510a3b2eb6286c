"""``Beat``: what a rank says of itself while it trains, from a thread: alive, how far, and its last collective.

The training thread does nothing for it: the thread asks where it stands. What it says is a small file on this host,
written whole, so that a rank that is stopped in the middle of it leaves the one before.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from trainwright.artifact.store import writing
from trainwright.core.errors import in_one_line
from trainwright.runtime.timing.clock import Position
from trainwright.spec.measures import BESIDE_STEPS

KEPT_COLLECTIVES = "64"
"""Of torch's flight recorder: enough to compare ranks, few enough to be read every second."""
RECORDERS = {"": "_dump_fr_trace_json", "nccl/": "_dump_nccl_trace_json"}
"""torch's flight recorders, by what tells their collectives apart: NCCL has one of its own."""
STILL_BEATS = 3
"""A rank that has not moved for so many of them waits, and changes nothing in torch meanwhile."""
Arrivals = Mapping[str, int]
"""When a rank came to each collective, in nanoseconds, by the collective's name and number."""
Collectives = tuple[str, int, Arrivals]
"""The last one's name, how many there were, and arrivals at the last ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """A rank's last word; times are seconds of a clock that all processes of the host share.

    Attributes:
        pid: of the process.
        alive_s: when it was written.
        progressed_s: when the phase last changed.
        step: updates made.
        steps_here: updates made by this process.
        phase: of the step; empty before training.
        collective: name of the last collective, or empty.
        collectives: how many there were.
        arrivals: at the last ones, in their order.
        done: the rank has ended as it should, or said why not.
        main_thread: number of the thread that trains, as it stands in the process's stacks.
    """

    pid: int
    alive_s: float
    progressed_s: float
    step: int = 0
    steps_here: int = 0
    phase: str = ""
    collective: str = ""
    collectives: int = 0
    arrivals: Arrivals = field(default_factory=dict)
    done: bool = False
    main_thread: int = 0


class Beat:
    """Writes this rank's state from a thread, every so many seconds."""

    def __init__(self, folder: Path, rank: int, every_s: float) -> None:
        self._path, self._every_s = path_of(folder, rank), every_s
        self._where: Callable[[], Position] | None = None
        self._first_step = 0
        self._position: Position = (0, "", None)
        self._progressed_s = time.monotonic()
        self._seen: Collectives = ("", 0, {})
        self._refused = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._thread.start()

    def follow(self, where: Callable[[], Position]) -> None:
        """Asks this from now on where training stands."""
        self._first_step = where()[0]
        self._where = where

    def close(self) -> None:
        """Says that this rank has ended."""
        self._ended.set()
        self._thread.join()
        self._try(done=True)

    def _run(self) -> None:
        while True:
            self._try(done=False)
            if self._ended.wait(self._every_s):
                return

    def _try(self, *, done: bool) -> None:
        """Writes the state; what the disk refuses is said once, and written the next time if the disk takes it."""
        try:
            self._write(done=done)
        except OSError as error:
            if not self._refused:
                sys.stderr.write(f"cannot say how this rank is (seen {in_one_line(error)}): it is tried again\n")
            self._refused = True
        else:
            self._refused = False

    def _write(self, *, done: bool) -> None:
        now = time.monotonic()
        where = self._where
        position = self._position if where is None else where()
        if position != self._position:
            self._position, self._progressed_s = position, now
        step, phase, _ = position
        steps_here = 0 if where is None else step - self._first_step
        if self._readable(phase, steps_here, now):
            self._seen = _collectives()
        name, number, arrivals = self._seen
        state = State(
            pid=os.getpid(),
            alive_s=now,
            progressed_s=self._progressed_s,
            step=step,
            steps_here=steps_here,
            phase=phase,
            collective=name,
            collectives=number,
            arrivals=arrivals,
            done=done,
            main_thread=threading.main_thread().ident or 0,
        )
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(state)))
        partial.replace(self._path)

    def _readable(self, phase: str, steps_here: int, now_s: float) -> bool:
        """Returns whether torch's flight recorder may be read from this thread.

        Torch walks its lists of groups without its lock (``getPgConfigJson`` and ``getPgStatusJson`` of 2.13), and a
        group is entered into them when it is made and by its first collective: before the first step here is done, or
        in what stands beside the steps. There only a rank that stands still is asked.
        """
        makes_groups = steps_here < 1 or phase in BESIDE_STEPS
        return not makes_groups or now_s - self._progressed_s >= STILL_BEATS * self._every_s


def _collectives() -> Collectives:
    """Returns what torch's flight recorders hold; nothing where torch keeps none."""
    held = {kind: entries for kind, name in RECORDERS.items() if (entries := _entries(name))}
    if not held:
        return "", 0, {}
    ordered = sorted(
        ((each["time_created_ns"], kind, each) for kind, entries in held.items() for each in entries),
        key=lambda entry: int(entry[0]),
    )
    arrivals = {
        f"{kind}{each['process_group'][0]}/{each['collective_seq_id']}": begun_ns for begun_ns, kind, each in ordered
    }
    count = sum(entries[-1]["record_id"] + 1 for entries in held.values())
    return ordered[-1][2]["profiling_name"], count, arrivals


def _entries(recorder: str) -> list[dict[str, Any]]:
    dump: Any = getattr(c10d, recorder, None)
    if dump is None or not dist.is_initialized():
        return []
    return [each for each in json.loads(dump()).get("entries", ()) if not each["is_p2p"]]


@contextmanager
def beating(folder: Path | None, rank: int, hang_after_s: float) -> Iterator[Beat | None]:
    """Says how this rank is for a while, writes its stacks where SIGUSR2 asks for them; silent without a folder.

    Raises:
        MachineError: the disk takes no file for them.
    """
    if folder is None:
        yield None
        return
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", KEPT_COLLECTIVES)
    with writing(folder, field="TMPDIR"):
        stacks = stack_of(folder, rank).open("w")
    with stacks:
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
        beat = Beat(folder, rank, interval_s(hang_after_s))
        try:
            yield beat
        finally:
            faulthandler.unregister(signal.SIGUSR2)
            beat.close()


def interval_s(hang_after_s: float) -> float:
    """Returns how often ranks speak and are heard."""
    return min(1.0, max(0.05, hang_after_s / 20))


def path_of(folder: Path, rank: int) -> Path:
    """Returns where a rank's state stands."""
    return folder / f"rank-{rank}.json"


def stack_of(folder: Path, rank: int) -> Path:
    """Returns where a rank's stacks are written."""
    return folder / f"rank-{rank}.stacks"


def heard(folder: Path, rank: int) -> State | None:
    """Returns a rank's last word; None before its first."""
    path = path_of(folder, rank)
    return State(**json.loads(path.read_text())) if path.is_file() else None


def innermost(stacks: str, main_thread: int) -> str:
    """Returns where a process stood, of its stacks: the main thread's innermost call, and its innermost of ours.

    The "current" thread is the one that the signal came to, which may be any. Python tells the oldest thread last.
    """
    blocks = [block for block in stacks.split("\n\n") if block.strip()]
    if not blocks:
        return ""
    block = next((each for each in blocks if f" 0x{main_thread:016x} " in each.partition("\n")[0]), blocks[-1])
    calls = [line.strip().removeprefix("File ") for line in block.splitlines() if line.strip().startswith("File ")]
    ours = next((call for call in calls if "trainwright" in call and "/beat.py" not in call), "")
    inner = calls[0] if calls else ""
    return inner if inner == ours or not ours else f"{inner}, called by {ours}"
