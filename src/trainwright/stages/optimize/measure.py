"""A few updates of a training, timed: the trainer's own step in a process of its own, without checkpoints.

Run as ``python -m trainwright.stages.optimize.measure PARENT``, the id of the process that starts it and which it ends
with, and a request on stdin. Each line on stdout is one JSON value: a number says how many updates are done, the object
at the end is a ``Measurement``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact
from trainwright.core.records import from_json, to_json
from trainwright.core.registry import load
from trainwright.launch.parent import end_with
from trainwright.planner.evidence.ladder import Measurement
from trainwright.runtime.execution import torch_settings
from trainwright.runtime.memory import measured_use, tensor_bytes
from trainwright.runtime.timing.laps import Laps
from trainwright.spec.recipe import Recipe

TRAINER = "trainwright.stages.train.stage"
"""What is measured, by name: in this process alone stands the trainer beside the stage that asks for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureRequest:
    """What to measure: a recipe, and by role the folders of its plan, its dataset and what it begins with."""

    recipe: dict[str, Any]
    inputs: dict[str, str]
    warmup_steps: int
    steps: int


def main(request: MeasureRequest) -> None:
    """Measure, and print how far it is and what came of it."""
    recipe = Recipe.model_validate(request.recipe)
    inputs = {role: open_artifact(Path(path)) for role, path in request.inputs.items()}
    plan = read_plan(inputs["plan"].file(PLAN))
    dataset = TokenDataset.open(inputs["dataset"].path)
    settings = load(f"{TRAINER}:settings_of", kind="trainer")(recipe, plan, dataset)
    settings = replace(settings, sizes=replace(settings.sizes, ramp=()))  # updates as most of the run has them
    with torch_settings(settings), tempfile.TemporaryDirectory() as folder, Events(None, run=recipe.name) as events:
        context = Context(recipe=recipe, out=Path(folder), events=events, root=Path(folder), inputs=inputs)
        trainer, _ = load(f"{TRAINER}:trainer_of", kind="trainer")(context, settings, dataset, learns=False)
        found = measure(trainer, warmup_steps=request.warmup_steps, steps=request.steps)
    _print(to_json(found))


def measure(trainer: Any, *, warmup_steps: int, steps: int) -> Measurement:
    """Returns what ``steps`` updates of a ``Trainer`` take after ``warmup_steps`` others."""
    device, losses = trainer.settings.device, []
    laps, clock = Laps(device), trainer.clock
    clock.start()
    laps.mark()
    for done, (update, _) in enumerate(trainer.updates(0, warmup_steps + steps), start=1):
        losses.append(update.loss_sum / update.targets)
        laps.mark()
        if done == warmup_steps:
            clock.stop()
        _print(done)
    phases, seconds = clock.stop(), laps.seconds()
    usual_s = statistics.median(seconds[warmup_steps:])
    weights = tensor_bytes(trainer.network.parameters())
    peak = measured_use(device=device, weights=weights, gradients=0, optimizer=0, activations=0, logits=0)
    return Measurement(
        step_s=tuple(seconds[warmup_steps:]),
        losses=tuple(float(loss) for loss in losses[warmup_steps:]),
        step_tokens=trainer.settings.sizes.full,
        memory_bytes=peak.total_bytes,
        start_s=max(0.0, sum(seconds[:warmup_steps]) - warmup_steps * usual_s),
        phases=phases.scaled(1 / steps),
    )


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    main(from_json(MeasureRequest, json.load(sys.stdin), where="stdin"))
    # Everything is written; to take torch's modules down in order would take another second.
    os._exit(0)
