"""The process that measures, apart from the caller's: nothing lies around in its memory, and a crash ends only itself.

Run as ``python -m trainwright.stages.doctor.child THREADS FOLDER quick|thorough``. Each line on stdout is one JSON
value: a string names what is measured now, the object at the end is a ``Probes``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

import trainwright.artifact.shards
import trainwright.model.bundle
import trainwright.spec.recipe  # noqa: F401  # what training holds, loaded for its weight
from trainwright.core.records import to_json
from trainwright.hardware.machine.probes import Probes
from trainwright.hardware.machine.processor import cpu_model
from trainwright.model.build import build_network
from trainwright.runtime import probes as measure
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import DTYPES, Device, choose
from trainwright.runtime.memory import resident_bytes
from trainwright.runtime.timing.stopwatch import Stopwatch
from trainwright.spec.workload import Precision
from trainwright.stages.doctor import reference
from trainwright.stages.doctor.effort import QUICK_CPU, Effort, effort

T = TypeVar("T")


def main(threads: int, folder: Path, *, thorough: bool) -> None:
    """Measure everything and print it."""
    device = choose()
    as_training_does(threads)
    dtypes: tuple[Precision, ...] = ("fp32", "bf16") if device.native_bf16 else ("bf16", "fp32")
    load_what_training_loads(dtypes[-1])
    # Else each collection before a measurement of memory walks through all that torch has imported: 0.3 s each.
    gc.freeze()
    started_s = time.time() - psutil.Process().create_time()
    measured = probe(
        device, folder, dtypes, effort(device.kind, thorough=thorough), threads=threads, import_s=started_s
    )
    _print(to_json(replace(measured, thorough=thorough)))


def as_training_does(threads: int) -> None:
    """Sets the switches of a training process: threads, deterministic algorithms, a heap that keeps freed memory."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(choose().kind == "cpu")
    switches: Any = torch.utils.deterministic  # built at run time, so that type checkers cannot see into it
    switches.fill_uninitialized_memory = False
    keep_freed_memory()


def load_what_training_loads(dtype: str) -> None:
    """Import the rest and multiply once, so that the libraries' own buffers are there."""
    if find_spec("tensorboard") is not None:
        import_module("torch.utils.tensorboard")
    spec = reference.model_spec(QUICK_CPU.blocks.shapes[1])
    model = build_network(spec, dtype=DTYPES[dtype])
    model.initialise(0)
    model(torch.zeros(1, spec.context_tokens, dtype=torch.long)).sum().backward()


def probe(
    device: Device, folder: Path, dtypes: tuple[Precision, ...], shapes: Effort, *, threads: int, import_s: float
) -> Probes:
    """Returns every probe on one device; memory first, while nothing else has touched the heap.

    Args:
        device: what to measure.
        folder: where the disk is measured.
        dtypes: the precisions, the fastest last.
        shapes: how much to measure.
        threads: that computations use.
        import_s: seconds that this process took to start.
    """
    begin = time.perf_counter()
    target = device.torch_device
    short = Stopwatch(target, budget_s=shapes.short_s)
    long = Stopwatch(target, budget_s=shapes.long_s, most=10)
    fastest = dtypes[-1:]
    baseline_bytes = resident_bytes()
    growth = _all("memory of a network", reference.probe_growth(target, shapes.growth.entries(fastest)))
    peak = _all("the peak", measure.probe_peaks(long, shapes.squares.entries(dtypes)))
    blocks = _all("transformer blocks", reference.probe_blocks(long, shapes.blocks.entries(dtypes)))
    loss = _all("the loss", reference.probe_losses(long, shapes.losses.entries(dtypes)))
    matmul = _all("matrix products", measure.probe_matmuls(short, shapes.linears.entries(dtypes)))
    attending = measure.probe_attention(short, shapes.attentions.entries(dtypes), reference.causal_attention)
    attention = _all("attention", attending)
    bandwidth = _all("memory bandwidth", measure.probe_bandwidth(short, shapes.working_sets.alone()))
    updating = (measure.probe_update(short, parameters=count) for count in shapes.updates.alone())
    return Probes(
        device_kind=device.kind,
        device_name=cpu_model() if device.kind == "cpu" else device.name,
        threads=threads,
        thorough=False,
        measured_unix_s=round(time.time(), 3),
        cpu_busy=0.0,
        import_s=import_s,
        baseline_bytes=baseline_bytes,
        growth=growth,
        peak=peak,
        blocks=blocks,
        loss=loss,
        matmul=matmul,
        attention=attention,
        bandwidth=bandwidth,
        update=_all("AdamW", updating),
        muon=_all("Muon", reference.probe_muon(short, shapes.matrices.alone())),
        launch_s=measure.probe_launch_s(short),
        disk=measure.probe_disk(folder, size_bytes=shapes.disk_bytes),
        probe_s=time.perf_counter() - begin,
        memory_bytes=device.memory_bytes,
    )


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _all(name: str, measured: Iterator[T]) -> tuple[T, ...]:
    """Print what is measured, then measure all of it."""
    _print(name)
    return tuple(measured)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), thorough=sys.argv[3] == "thorough")
    # Everything is written; to take torch's modules down in order would take another second.
    os._exit(0)
