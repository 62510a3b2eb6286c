"""The process that measures, apart from the caller's: nothing lies around in its memory, and a crash ends only itself.

Run as ``python -m trainwright.stages.doctor.child THREADS FOLDER``. Each line on stdout is one JSON value: a string
says
what is measured now, the object at the end is a ``Probes``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import psutil
import torch

import trainwright.artifact.shards
import trainwright.model.bundle  # noqa: F401  # what training holds, loaded for its weight
from trainwright.core.records import to_json
from trainwright.hardware.probes import Probes
from trainwright.hardware.processor import cpu_model
from trainwright.model.decoder import Decoder
from trainwright.runtime import probes as measure
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import DTYPES, Device, choose
from trainwright.runtime.memory import resident_bytes
from trainwright.runtime.stopwatch import Stopwatch
from trainwright.stages.doctor import reference

T = TypeVar("T")

SHORT_S, LONG_S = 0.03, 0.3
"""Time for all repetitions of one small call and of one whole pass."""
UPDATE_PARAMETERS = (1 << 20, 1 << 24)


def main(threads: int, folder: Path) -> None:
    """Measure everything and print it."""
    device = choose()
    as_training_does(threads)
    dtypes = ("fp32", "bf16") if device.native_bf16 else ("bf16", "fp32")
    load_what_training_loads(dtypes[-1])
    started_s = time.time() - psutil.Process().create_time()
    probes = probe(device, folder, dtypes, threads=threads, import_s=started_s)
    _tell(to_json(probes))


def as_training_does(threads: int) -> None:
    """The switches of a training process: threads, deterministic algorithms, a heap that keeps freed memory."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by name
    keep_freed_memory()


def load_what_training_loads(dtype: str) -> None:
    """Import the rest and multiply once, so that the libraries' own buffers are there."""
    if find_spec("tensorboard") is not None:
        import_module("torch.utils.tensorboard")
    spec = reference.model_spec(reference.CPU_SHAPES[1])
    model = Decoder(spec)
    model.initialise(0)
    model.compute_dtype = DTYPES[dtype]
    model(torch.zeros(1, spec.context_tokens, dtype=torch.long)).sum().backward()


def probe(device: Device, folder: Path, dtypes: tuple[str, ...], *, threads: int, import_s: float) -> Probes:
    """Every probe on one device; memory first, while nothing else has touched the heap."""
    begin = time.perf_counter()
    target = device.torch_device
    short, long = Stopwatch(target, budget_s=SHORT_S), Stopwatch(target, budget_s=LONG_S, most=10)
    return Probes(
        device_kind=device.kind,
        device_name=cpu_model() if device.kind == "cpu" else device.name,
        threads=threads,
        import_s=import_s,
        baseline_bytes=resident_bytes(),
        growth=_say("memory of a network", lambda: tuple(reference.probe_growth(target, dtypes[-1]))),
        blocks=_say("transformer blocks", lambda: tuple(reference.probe_blocks(long, dtypes))),
        loss=_say("the loss", lambda: tuple(reference.probe_losses(long, dtypes))),
        matmul=_say("matrix products", lambda: tuple(measure.probe_matmuls(short, dtypes))),
        attention=_say("attention", lambda: tuple(measure.probe_attention(short, dtypes, reference.causal_attention))),
        bandwidth=_say("memory bandwidth", lambda: tuple(measure.probe_bandwidth(short))),
        update=_say("AdamW", lambda: tuple(measure.probe_update(short, parameters=n) for n in UPDATE_PARAMETERS)),
        muon=_say("Muon", lambda: tuple(reference.probe_muon(short))),
        launch_s=measure.probe_launch_s(short),
        disk=_say("the disk", lambda: measure.probe_disk(folder)),
        probe_s=time.perf_counter() - begin,
    )


def _tell(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _say(name: str, made: Callable[[], T]) -> T:
    _tell(name)
    return made()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
