"""A checkpoint of GPT-2 124M with AdamW: how long training stands still for one, and how soon a new process trains on.

    python benchmarks/checkpoint.py [--folder FOLDER] [--rounds N] [--json FILE]

* stall: seconds of ``Checkpoints.save`` with no write under way: the copy. The first one also gets its memory.
* write: from then until the checkpoint is complete on the disk, beside nothing else.
* beside training: the same, while steps go on in the main thread, and what a step takes longer then.
* resume: digests and tensors read, then the first step, beside a later step. ``beyond reading`` is all of it without
  the time that reading the same bytes takes.

The aim: stall / (stall + write) <= 5 %, and at most 10 s beyond reading.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainwright.artifact.events import Events
from trainwright.hardware.catalogue.models import published_model
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress
from trainwright.stages.train.optimizer import Optimizers

TOKENS = 128
"""Of the one sequence of a step: short, because the state alone is what a checkpoint is about."""
AIM_STALL, AIM_RESUME_S = 0.05, 10.0


class Training:
    """A network that trains on random tokens."""

    def __init__(self, spec: ModelSpec, folder: Path, *, seed: int) -> None:
        """Builds it, and the folder of its checkpoints."""
        self.network: Network = build_network(spec, dtype=torch.float32)
        self.network.initialise(seed)
        self.optimizers = Optimizers(self.network, AdamWSection())
        (folder / "tokenizer.json").write_text("{}")
        self.checkpoints = Checkpoints(
            folder / "checkpoints", keep=1, tokenizer=folder / "tokenizer.json", events=Events(None, run="benchmark")
        )
        self.tokens = torch.randint(0, spec.vocabulary, (1, TOKENS))
        self.steps = 0

    def step(self) -> None:
        """Makes one update."""
        hidden: torch.Tensor = self.network(self.tokens)
        loss = hidden.float().square().mean()
        torch.autograd.backward(loss)
        self.optimizers.step(1.0)
        self.optimizers.zero_grad()
        self.steps += 1

    def state(self) -> State:
        """Returns what a checkpoint holds."""
        progress = TrainingProgress(step=self.steps)
        return State(network=self.network, optimizers=self.optimizers, progress=progress)


def seconds_of(call: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def writes(training: Training, rounds: int) -> dict[str, Any]:
    """Returns seconds of stalls and writes, alone and beside training."""
    stalls, alone, beside, slowed = [], [], [], []
    training.step()
    quiet_s = statistics.median(seconds_of(training.step) for _ in range(3))
    for _ in range(rounds):
        stalls.append(seconds_of(lambda: training.checkpoints.save(training.state())))
        alone.append(seconds_of(training.checkpoints.paths))
        training.step()
    for _ in range(rounds):
        begun = time.perf_counter()
        pending = training.checkpoints.save(training.state())
        slowed += [seconds_of(training.step) for _ in range(3)]
        pending.wait()
        beside.append(time.perf_counter() - begun)
        training.checkpoints.paths()
    later, write_s = stalls[1:] or stalls, statistics.median(alone)
    stall_s = statistics.median(later)
    return {
        "first_stall_s": stalls[0],
        "stall_s": stall_s,
        "write_s": write_s,
        "stall_share": stall_s / (stall_s + write_s),
        "write_beside_training_s": statistics.median(beside),
        "step_s": quiet_s,
        "step_beside_write_s": statistics.median(slowed),
    }


def resume(spec: ModelSpec, folder: Path) -> dict[str, Any]:
    """Returns seconds of going on from the newest checkpoint."""
    (path,) = (folder / "checkpoints").glob("step-*")
    files = [each for each in path.iterdir() if each.is_file()]
    reading_s = seconds_of(lambda: [each.read_bytes() for each in files])
    begun = time.perf_counter()
    training = Training(spec, folder, seed=2)
    built_s = time.perf_counter() - begun
    restore_s = seconds_of(lambda: training.checkpoints.restore(training.network, training.optimizers))
    first_s = seconds_of(training.step)
    later_s = statistics.median(seconds_of(training.step) for _ in range(3))
    return {
        "size_bytes": sum(each.stat().st_size for each in files),
        "reading_s": reading_s,
        "build_s": built_s,
        "restore_s": restore_s,
        "first_step_s": first_s,
        "later_step_s": later_s,
        "beyond_reading_s": built_s + restore_s + first_s - reading_s,
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk that is measured (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=5, help="writes of each kind (default: 5)")
    parser.add_argument("--model", default="gpt2", help="a published model (default: gpt2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go too")
    args = parser.parse_args()
    spec = published_model(args.model).spec
    assert isinstance(spec, ModelSpec), f"{args.model} is no transformer"
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        folder = Path(temporary)
        measured = writes(Training(spec, folder, seed=1), args.rounds) | resume(spec, folder)
    for name, value in measured.items():
        print(f"{name:26} {value:16.3f}")
    print(f"stall {measured['stall_share']:.1%} of stall and write (aim {AIM_STALL:.0%})")
    print(f"{measured['beyond_reading_s']:.1f} s beyond reading until a step is made (aim {AIM_RESUME_S:.0f} s)")
    if args.json is not None:
        args.json.write_text(
            json.dumps({"model": args.model, "threads": torch.get_num_threads(), **measured}, indent=1)
        )


if __name__ == "__main__":
    main()
