"""What OpenMP's waiting costs, with an idle machine and with a busy process beside it.

    python benchmarks/openmp_wait.py

Runs the quickstart's network for a few seconds in a process of its own for each setting of GNU OpenMP's spinning,
first alone, then beside as many busy processes as there are cores. Prints milliseconds a step. The command line uses
``GOMP_SPINCOUNT=10000`` (``trainwright/core/environment.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"OMP_WAIT_POLICY": "passive"},
    {"GOMP_SPINCOUNT": "1000"},
    {"GOMP_SPINCOUNT": "10000"},
)
TRIALS = 4
"""The outcome has two modes: it depends on how the scheduler happens to place the threads."""
PROGRAM = """
import time, torch
from trainwright.model.build import build_network
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import MuonSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep
keep_freed_memory()
spec = ModelSection(layers=4, width=192, heads=2, ffn_width=512, context_tokens=256).spec(vocabulary=4096)
network = build_network(spec, dtype=torch.bfloat16)
network.initialise(0)
clock = PhaseClock(torch.device("cpu"))
clock.start()
step = TrainingStep(
    NextToken(sequence_tokens=256), network, Optimizers(network, MuonSection()), clock, micro_batch=8,
    clip_norm=1.0, compiled=False,
)
batch = {"tokens": torch.randint(0, 4096, (8, 257))}
step(batch, 0.1)
begin, steps = time.perf_counter(), 0
while time.perf_counter() - begin < 5:
    step(batch, 0.1)
    steps += 1
print((time.perf_counter() - begin) / steps * 1e3)
"""


def milliseconds(setting: dict[str, str]) -> float:
    """Milliseconds of one training step under a setting."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean | setting, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> int:
    """Measure every setting alone, and several times on a busy machine."""
    print(f"{'setting':28} {'alone':>8}   on a busy machine, {TRIALS} trials   (ms a step)")
    for setting in SETTINGS:
        alone = milliseconds(setting)
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        try:
            beside = [milliseconds(setting) for _ in range(TRIALS)]
        finally:
            for other in others:
                other.kill()
                other.wait()
        name = " ".join(f"{key}={value}" for key, value in setting.items()) or "default"
        print(f"{name:28} {alone:8.0f}   {', '.join(f'{value:.0f}' for value in sorted(beside))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
