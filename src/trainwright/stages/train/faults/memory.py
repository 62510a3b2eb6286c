"""Out of memory: which class grew beyond the plan, and the cheapest change with which the planner sees it fit."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.errors import TrainingError
from trainwright.core.registry import load
from trainwright.core.units import format_bytes
from trainwright.runtime.memory import device_bytes, tensor_bytes
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import Recompute

if TYPE_CHECKING:
    from trainwright.stages.train.trainer import Trainer

SAID = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc")
"""What torch's allocators say; on a CPU they raise nothing more special than RuntimeError."""
WORTH_A_WORD = 0.01
"""Of all that was planned: a class that grew by less is not why memory ended."""
CHANGES = "trainwright.stages.train.faults.changes:cheapest_change"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What to train with instead, and how many times as long a step then takes."""

    micro_batch: int
    recompute: Recompute
    slowdown: float

    def __str__(self) -> str:
        """Returns the keys that ask for it."""
        return f"train.exec.micro_batch={self.micro_batch} train.recompute={self.recompute}"


class OutOfMemory(TrainingError):
    """The device, or this process's share of the host, has no more memory."""

    change: Change | None = None


def out_of_memory(error: BaseException, trainer: Trainer, plan: Plan) -> OutOfMemory | None:
    """Returns an error that says what grew, or that nothing did, and what helps.

    None where ``error`` is about something else.
    """
    text = str(error)
    if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and not any(word in text for word in SAID):
        return None
    measured, planned = _now(trainer, _asked_bytes(text)), _planned(plan)
    named, verdict = _verdict(measured, planned)
    change: Change | None = load(CHANGES, kind="change")(plan, trainer.recipe.train.exec.kernels)
    how = trainer.recipe.train.exec.on_oom
    explained = OutOfMemory(
        "out of memory in step {step}: {verdict}",
        where="train",
        seen=f"{format_bytes(measured[named])} of {format_bytes(sum(measured.values()))} in all",
        expected=f"{format_bytes(planned[named])} of {format_bytes(sum(planned.values()))} as planned",
        fix=_advice(change, adapts=how == "adapt"),
        step=trainer.progress.step + 1,
        verdict=verdict,
    )
    explained.change = change
    return explained


def _verdict(measured: Mapping[str, float], planned: Mapping[str, float]) -> tuple[str, str]:
    """Returns the class that grew most, or the largest where none grew worth a word, and what that says."""
    grown = max(measured, key=lambda name: measured[name] - planned[name])
    if measured[grown] - planned[grown] > WORTH_A_WORD * sum(planned.values()):
        return grown, f"{grown} grew beyond the plan"
    largest = max(measured, key=lambda name: measured[name])
    return largest, f"there is less memory than the plan counts on, and {largest} take most of it"


def _advice(change: Change | None, *, adapts: bool) -> str:
    if change is None:
        return "no smaller micro batch and no recomputation is left: take a smaller model or more devices"
    by_itself = "" if adapts else "; train.exec.on_oom=adapt does so by itself"
    return f"set {change} (a step takes {change.slowdown:.2f} times as long){by_itself}"


def _now(trainer: Trainer, asked_bytes: int) -> dict[str, float]:
    """Returns bytes by class at this moment, and what was asked for; what no class explains are the activations'."""
    parameters = list(trainer.world.local(trainer.network.parameters()))
    gradients = [parameter.grad for parameter in trainer.network.parameters() if parameter.grad is not None]
    known = {
        "weights": tensor_bytes(parameters),
        "gradients": tensor_bytes(trainer.world.local(gradients)),
        "the optimizer's state": tensor_bytes(trainer.world.local(trainer.optimizers.on_device())),
    }
    counted = device_bytes(trainer.settings.device)
    total = 0 if counted is None else counted[0]
    return {**known, "activations": max(0, total - sum(known.values())) + asked_bytes}


def _planned(plan: Plan) -> dict[str, float]:
    use = plan.estimate.memory
    rest = use.activations + use.logits + use.workspace + use.communication
    return {
        "weights": use.weights,
        "gradients": use.gradients,
        "the optimizer's state": use.optimizer,
        "activations": rest,
    }


def _asked_bytes(text: str) -> int:
    """Returns what an allocator says that it was asked for."""
    on_cpu = re.search(r"tried to allocate (\d+) bytes", text)
    if on_cpu:
        return int(on_cpu[1])
    on_device = re.search(r"[Tt]ried to allocate ([\d.]+) ([KMG])iB", text)
    return int(float(on_device[1]) * 1024 ** ("KMG".index(on_device[2]) + 1)) if on_device else 0


def with_change(recipe: Recipe, plan: Plan, change: Change) -> tuple[Recipe, Plan]:
    """Returns recipe and plan with a change; what is learnt is the same, to rounding."""
    train = recipe.train.model_copy(update={"recompute": change.recompute})
    plan = replace(
        plan,
        workload=replace(plan.workload, recompute=change.recompute),
        parallel=replace(plan.parallel, micro_batch_sequences=change.micro_batch),
    )
    return recipe.model_copy(update={"train": train}), plan


def adapting(context: Context, plan: Plan, train: Callable[..., Any], *arguments: Any) -> Any:
    """Trains, and where memory ends goes on from the last checkpoint with the cheapest change, while there is one.

    Raises:
        TrainwrightError: as ``train``; out of memory, where no change is left.
    """
    while True:
        try:
            return train(context, plan, *arguments)
        except OutOfMemory as error:
            if error.change is None:
                raise
            change, what = error.change, error.what
            error.__traceback__ = error.__cause__ = None  # they hold the network that is to go
        gc.collect()
        recipe, plan = with_change(context.recipe, plan, change)
        context = replace(context, recipe=recipe)
        tell(context.out, context.events, what, change)


def tell(out: Path, events: Events, what: str, change: Change) -> None:
    """Records what training goes on with."""
    with Events(out / "events.jsonl", run=events.run, listeners=events.listeners) as log:
        log.message(f"{what}: going on from the last checkpoint with {change}")
