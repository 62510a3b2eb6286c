"""A few steps under torch's profiler: each rank's trace, memory over time, phases and operators."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from trainwright.artifact.stage import Context
from trainwright.artifact.store import write_atomically
from trainwright.core.records import to_json
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.planner.evidence.profile import FILE, Operator, Profile, RankProfile, Stretch
from trainwright.runtime.memory import resident_bytes
from trainwright.runtime.timing.clock import Span
from trainwright.spec.plan import Plan
from trainwright.stages.train.observe.child import begin_at, carry_out, trainer_at
from trainwright.stages.train.world import World

SNAPSHOTS = "cuda"
"""What torch calls devices whose allocator writes snapshots of itself: CUDA and ROCm.

``torch.accelerator`` (2.13) begins and writes none; the module of this kind of device does.
"""
OPERATORS = 20
"""That are listed of each rank."""
QUIET = "99"
"""Level from which on the profiler's library tells its own news on stderr."""
FIRST_PHASE = "data_wait"
"""A step begins where its batch is waited for."""


def profile_run(context: Context, *, run: Path | None, first: int, last: int) -> None:
    """Profiles updates ``first`` to ``last`` of a run into ``context.out``, on all ranks of its plan.

    Args:
        context: of the training, with a folder of its own to write into.
        run: the run's folder, whose checkpoints may be gone on from; None where there is none.
        first: the first update, from 1.
        last: the last one.

    Raises:
        RecipeError: the run is shorter, or the trainer cannot execute the plan.
        TrainwrightError: as training.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)
    begin_at(context.out, run, step=first - 1)
    carry_out(context, partial(profiled, first=first, last=last))


def profiled(context: Context, plan: Plan, world: World, *, first: int, last: int) -> None:
    """Profiles these updates as one rank; the leading one writes what all of them saw."""
    torch_type = accelerator(plan.cluster.device.kind).torch_type
    files = files_of(torch_type, world.rank)
    snapshot = context.out / files["memory"] if torch_type == SNAPSHOTS else None
    with trainer_at(context, plan, world, step=first - 1, last=last) as trainer:
        world.gathered(0)  # all begin together
        with _memory_recorded(snapshot), _profiler(torch_type) as profiler:
            trainer.clock.start()
            began_s, resident = time.time(), resident_bytes()
            for done, _ in enumerate(trainer.updates(first - 1, last), start=first):
                if world.leads:
                    context.events.progress("profile", done - first + 1, total=last - first + 1, unit="steps")
            spans = trainer.clock.spans()
    trace = context.out / files["trace"]
    profiler.export_chrome_trace(str(trace))
    if snapshot is None:
        timeline = memory_over_time(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"], resident)
        write_atomically(context.out / files["memory"], json.dumps(timeline).encode())
    mine = RankProfile(
        rank=world.rank,
        host=platform.node(),
        began_unix_s=began_s,
        steps=steps_of(spans),
        operators=_operators(profiler, on_device=torch_type != "cpu"),
        files=files,
    )
    ranks = tuple(world.gathered(mine))
    if world.leads:
        made = Profile(recipe=context.recipe.name, device=plan.cluster.device.name, first=first, last=last, ranks=ranks)
        write_atomically(context.out / FILE, json.dumps(to_json(made), indent=1).encode() + b"\n")


def files_of(torch_type: str, rank: int) -> dict[str, str]:
    """Returns the names of a rank's trace and of its memory over time, for a device that torch calls so."""
    ending = "pickle" if torch_type == SNAPSHOTS else "json"
    return {"trace": f"trace-rank{rank}.json", "memory": f"memory-rank{rank}.{ending}"}


def steps_of(spans: Sequence[Span]) -> tuple[tuple[Stretch, ...], ...]:
    """Returns the stretches of each step; what stands before the first batch is no step's."""
    steps: list[list[Stretch]] = []
    for span in spans:
        if span.phase == FIRST_PHASE:
            steps.append([])
        if steps and span.end_s > span.begin_s:
            steps[-1].append(Stretch(phase=span.phase, begin_s=span.begin_s, end_s=span.end_s))
    return tuple(map(tuple, steps))


def memory_over_time(events: Sequence[dict[str, Any]], resident: int) -> dict[str, Any]:
    """Returns the bytes that torch allocated beyond those at the beginning, after each change.

    Args:
        events: of a trace in Chrome's format, whose times are microseconds.
        resident: bytes of the process in physical memory at the beginning.
    """
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    times, allocated, total = [], [], 0
    for at_us, size_bytes in changes:
        total += size_bytes
        times.append(round((at_us - changes[0][0]) / 1e6, 6))
        allocated.append(total)
    return {"resident_bytes_at_begin": resident, "time_s": times, "allocated_bytes": allocated}


def _profiler(torch_type: str) -> profile:
    """Returns torch's profiler of the host and of the device, where torch profiles such a one."""
    of_device = getattr(ProfilerActivity, torch_type.upper(), None)
    activities = dict.fromkeys((ProfilerActivity.CPU, of_device))
    return profile(activities=[each for each in activities if each is not None], profile_memory=True, acc_events=True)


@contextmanager
def _memory_recorded(path: Path | None) -> Iterator[None]:
    """Writes a snapshot of the allocator's history, for https://pytorch.org/memory_viz; nothing without a path."""
    if path is None:
        yield
        return
    memory = torch.get_device_module(SNAPSHOTS).memory
    memory._record_memory_history()  # noqa: SLF001  # torch documents both by these names
    try:
        yield
        memory._dump_snapshot(str(path))  # noqa: SLF001
    finally:
        memory._record_memory_history(enabled=None)  # noqa: SLF001


def _operators(profiler: profile, *, on_device: bool) -> tuple[Operator, ...]:
    """Returns the operators that took longest by themselves, on the device where there is one."""
    name = "self_device_time_total" if on_device else "self_cpu_time_total"
    found = [
        Operator(name=each.key, calls=each.count, self_s=float(getattr(each, name)) / 1e6)
        for each in profiler.key_averages()
    ]
    return tuple(sorted(found, key=lambda each: -each.self_s)[:OPERATORS])
