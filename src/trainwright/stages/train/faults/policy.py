"""What is done about an update that was refused: it is explained, then the run stops, goes on or goes back."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainwright.artifact.checkpoint.index import step_of
from trainwright.artifact.events import Events
from trainwright.core.errors import TrainingError
from trainwright.model.tasks.task import batch_of
from trainwright.runtime.faults.diagnosis import Finding, first_not_finite
from trainwright.runtime.faults.gate import Fault, action_of
from trainwright.stages.train.faults.passing_over import place
from trainwright.stages.train.faults.weights import not_finite
from trainwright.stages.train.metrics import TrainingMetrics

if TYPE_CHECKING:
    from trainwright.stages.train.trainer import Trainer

NAMED = 8
"""Sequences that a message names one by one."""
NOT_COMPILED = "set train.exec.compile=false: the C++ compiler, torch or a driver of this machine gets something wrong"


def answer(trainer: Trainer, fault: Fault, metrics: TrainingMetrics, events: Events, *, first: int) -> bool:
    """Explains a fault and does what the recipe says about it; returns whether the run went back.

    All ranks call it for the same fault.

    Args:
        trainer: whose update was refused; its weights are those before it, where a gate could hold them.
        fault: what was refused.
        metrics: that gathered the update.
        events: where to report.
        first: the step that the gate began with.

    Raises:
        TrainingError: the recipe says so, too many updates were refused, or the device computes wrongly.
    """
    step, section = first + fault.number, trainer.recipe.train.faults
    metrics.leave_out(fault.update)
    if fault.kind == "overflow":
        _count_overflow(trainer, events, step + 1)
        return False
    action, broken = action_of(section, fault), not_finite(trainer)
    where, compiled_alone = _explained(trainer, fault, step)
    explained = where + _of_scale(trainer, fault) + (f"; {_named(broken)}" if broken else "")
    fix = NOT_COMPILED if compiled_alone else _advice(trainer, step)
    error = partial(_error, fault, step + 1, _leapt(trainer, fault) if fault.kind == "spike" else "", fix)
    if action == "stop":
        raise error(explained)
    if action == "skip" and broken:
        raise error(f"{explained}, which no update that is left out can mend")
    _count(trainer, explained, error)
    if action == "skip":
        events.metric("train/skipped", trainer.progress.faults, step=step + 1, unit="updates")
        events.message(f"{error(explained).what}: the update is left out; {explained}")
        return False
    # What broke the weights is the update before, or this one where no gate could hold it.
    _roll_back(trainer, step, section.rollback_steps + bool(broken), broken, error)
    _tell(trainer, metrics, events, error(explained).what, explained)
    return True


def answer_weights(trainer: Trainer, broken: Sequence[str], metrics: TrainingMetrics, events: Events) -> bool:
    """Does what the recipe says about weights that the last update broke; returns that the run went back.

    All ranks call it together, before anything is made of these weights.

    Raises:
        TrainingError: the recipe says so; too many updates were rolled back, or going back has not helped before.
    """
    step, section = trainer.progress.step, trainer.recipe.train.faults
    seen, error = _named(broken), partial(_error_of_weights, trainer, step)
    if section.not_finite != "rollback":  # no later update that is left out can mend them
        raise error(seen)
    _count(trainer, seen, error)
    _roll_back(trainer, step - 1, section.rollback_steps, broken, error)
    _tell(trainer, metrics, events, error(seen).what, seen)
    return True


def no_measure(trainer: Trainer) -> TrainingError:
    """Returns the error of a run whose result has a validation loss that is no number."""
    step = trainer.progress.step
    return TrainingError(
        "the validation loss of the result, after step {step}, is not finite",
        where="train",
        seen="every weight is finite",
        fix=_advice(trainer, step),
        step=step,
    )


def _count(trainer: Trainer, seen: str, error: Callable[[str], TrainingError]) -> None:
    """Takes down a fault after which the run goes on; raises where there were too many."""
    faults = trainer.progress.faults
    if faults >= trainer.recipe.train.faults.most:
        raise error(f"{seen}; {faults} before it, as many as train.faults.most allows")
    trainer.progress = replace(trainer.progress, faults=faults + 1)


def _tell(trainer: Trainer, metrics: TrainingMetrics, events: Events, what: str, seen: str) -> None:
    """Says that the run went back, and why."""
    at, passed = trainer.progress.step, trainer.progress.passed_over
    metrics.go_back(trainer.progress.recent)
    events.emit("resume", "train", at, step=at)
    events.message(f"{what}: back to step {at}, and on without {len(passed)} batches; {seen}")


def too_few_made(trainer: Trainer) -> TrainingError:
    """Returns the error of a training most of whose updates, or all, were left out: its weights have learnt little."""
    scale, progress = trainer.step.scale, trainer.progress
    fix = _advice(trainer, progress.step)
    seen = f"{progress.faults} faults and {progress.overflows} overflows"
    if progress.recent:
        return TrainingError(
            "most of the run's {steps} updates were left out or rolled back: it learnt from few batches",
            where="train",
            seen=seen,
            expected="half of them made at least",
            fix=fix,
            steps=progress.step,
        )
    if scale is not None and progress.overflows:
        now = float(scale.factor)
        seen += f", a loss scale of {now:g} in the end"
        fix = f"set train.loss_scale.initial to {min(now, 2.0**16):g} or less, or train longer: each overflow halves it"
    return TrainingError(
        "none of the run's {steps} updates was made: nothing was learnt",
        where="train",
        seen=seen,
        expected="one at least",
        fix=fix,
        steps=progress.step,
    )


def _of_scale(trainer: Trainer, fault: Fault) -> str:
    """Returns that no smaller scale of the loss is left, where a gradient left the range of fp16 at the least one."""
    if trainer.step.scale is None or fault.kind != "not_finite" or not math.isfinite(fault.loss):
        return ""
    return f"; the loss scale is at its least ({float(trainer.step.scale.factor):g})"


def _count_overflow(trainer: Trainer, events: Events, step: int) -> None:
    """Takes down an update that a smaller scale of the loss mends."""
    trainer.progress = replace(trainer.progress, overflows=trainer.progress.overflows + 1)
    events.metric("train/overflows", trainer.progress.overflows, step=step, unit="updates")
    events.message(f"a gradient left the range of fp16 at step {step}: the update is left out, the loss scale halves")


def _explained(trainer: Trainer, fault: Fault, step: int) -> tuple[str, bool]:
    """Returns what first was not finite, and which sequences the step read; and whether compiled code alone made it."""
    batch = trainer.step.on_device(_batch(trainer, step))
    if trainer.recipe.train.exec.rerun:
        _compare(trainer, fault, batch, step)
    finding = first_not_finite(trainer.step, batch) if fault.kind == "not_finite" else None
    trainer.optimizers.zero_grad()
    offset = (trainer.rows(step) or range(1)).start
    here = finding and replace(finding, rows=tuple(offset + row for row in finding.rows))
    found: list[Finding] = [each for each in trainer.world.gathered(here) if each is not None]
    read = place(step, trainer.progress.passed_over)
    if not found:
        alone = fault.kind == "not_finite" and trainer.settings.compiled
        remark = "; without torch.compile all numbers of the step are finite" if alone else ""
        return f"batch {read} of the data{_tokens(trainer, read, ())}{remark}", alone
    earliest = min(found, key=lambda each: each.order)
    rows = sorted({row for each in found if each.order == earliest.order for row in each.rows})
    return f"first {earliest.what}, in batch {read} of the data{_tokens(trainer, read, tuple(rows))}", False


def _batch(trainer: Trainer, step: int) -> Any:
    trainer.prepare(step)
    return batch_of(trainer.batches, step, trainer.rows(step))


def _tokens(trainer: Trainer, read: int, rows: tuple[int, ...]) -> str:
    """Returns which sequences of a batch, and where their tokens stand in the dataset where its batches know that."""
    if not rows:
        return ""
    named = ", ".join(str(row) for row in rows[:NAMED]) + (", ..." if len(rows) > NAMED else "")
    batches: Any = trainer.batches
    places = [(read, row) for row in rows[:NAMED]]
    while not hasattr(batches, "starts") and hasattr(batches, "batches"):
        if hasattr(batches, "place"):  # of another size than those that it is made of
            places = [batches.place(*each) for each in places]
        batches = batches.batches
    if not hasattr(batches, "starts"):
        return f", sequences {named}"
    where = ", ".join(str(batches.starts(number)[row]) for number, row in places)
    return f", sequences {named} (which begin at tokens {where} of the train split)"


def _compare(trainer: Trainer, fault: Fault, batch: Any, step: int) -> None:
    """Computes the step again as it was; raises where the same numbers give other bits."""
    loss_sum, _ = trainer.step.gradient(batch)
    norm = trainer.step.clip()
    trainer.optimizers.zero_grad()
    before = torch.stack([fault.update.loss_sum.double(), fault.update.grad_norm.double()])
    again = torch.stack([loss_sum.double(), norm.double()])
    differ = not torch.equal(before.nan_to_num(nan=1e300), again.nan_to_num(nan=1e300))
    places = trainer.world.gathered(f"{trainer.settings.device} of {socket.gethostname()}" if differ else None)
    wrong = sorted({each for each in places if each is not None})
    if not wrong:
        return
    who = wrong[0] if len(wrong) == 1 else f"one of {', '.join(wrong)}"
    verdict, fix = f"{who} computes wrongly", "train on another device; the last checkpoint is good"
    if not trainer.settings.deterministic:
        verdict, fix = f"on {who}", "set train.exec.deterministic=true to know whether the device computes wrongly"
    raise TrainingError(
        "step {step} computed twice from the same weights and data gives other numbers: {verdict}",
        where="train.exec.rerun",
        seen=", ".join(f"{value:.9g}" for value in again.tolist()),
        expected=", ".join(f"{value:.9g}" for value in before.tolist()) + " (loss, gradient norm)",
        fix=fix,
        step=step + 1,
        verdict=verdict,
    )


def _named(broken: Sequence[str]) -> str:
    """Returns in words which weights are broken."""
    others = f" and of {len(broken) - 1} more" if len(broken) > 1 else ""
    return f"weights of {broken[0]}{others} are not finite"


def _roll_back(
    trainer: Trainer, step: int, batches: int, broken: Sequence[str], error: Callable[[str], TrainingError]
) -> None:
    """Restores the state before the batches that are passed over, and remembers them.

    Args:
        trainer: goes back.
        step: that read the last of them.
        batches: how many they are.
        broken: weights that are not finite.
        error: what is raised where going back cannot help, from the reason.
    """
    before, first = trainer.progress, max(0, step - batches + 1)
    paths = trainer.checkpoints.paths()
    old_enough = [path for path in paths if step_of(path) <= first] or paths[:1]
    for path in old_enough[-1:] if broken else ():
        if path.name in trainer.mended_from:
            raise error(f"{_named(broken)}, as they were after the run went back to {path.name} before")
        trainer.mended_from.add(path.name)
    trainer.checkpoints.go_back(old_enough)
    for member in trainer.optimizers.members:
        member.state.clear()  # the state at the start has none
    restored = trainer.checkpoints.restore(trainer.network, trainer.optimizers)
    if restored is None:
        raise TrainingError("there is no checkpoint to go back to from step {step}", where="train", step=step + 1)
    if there := not_finite(trainer):
        raise error(f"{_named(there)} in {old_enough[-1].name}, where the run went back to")
    passed = {place(each, before.passed_over) for each in range(max(first, restored.step), step + 1)}
    trainer.clock.stop()  # what the steps since the last report took went into no result either
    trainer.progress = replace(
        restored,
        resumes=before.resumes,
        faults=before.faults,
        passed_over=tuple(sorted({*before.passed_over, *passed})),
    )
    trainer.follow_progress()


def _leapt(trainer: Trainer, fault: Fault) -> str:
    """Returns which number leapt, and over which limit, as the updates say that the gate remembers.

    With ``skip`` on an accelerator they are those until the report, a few after the fault among them.
    """
    assert trainer.step.gate is not None
    deviation, mean = torch.std_mean(torch.tensor(trainer.step.gate.seen, dtype=torch.float64), dim=0)
    limit = mean + trainer.recipe.train.faults.spike_sigma * deviation
    both = zip(("loss", "gradient's norm"), (fault.loss, fault.norm), mean.tolist(), limit.tolist(), strict=True)
    told = {
        f"the {name} ({value:.4g}; before it {usual:.4g} in the mean, {most:.4g} at most)": value > most
        for name, value, usual, most in both
    }
    return " and ".join([name for name, over in told.items() if over] or told)


def _error(fault: Fault, step: int, leapt: str, fix: str, seen: str) -> TrainingError:
    """Returns the error of an update whose numbers cannot be right, with what helps."""
    if fault.kind == "not_finite":
        return TrainingError(
            "the loss or its gradient became {value} by step {step}",
            where="train",
            seen=seen,
            fix=fix,
            value=fault.value,
            step=step,
        )
    return TrainingError(
        "{leapt} leapt at step {step}",
        where="train",
        seen=seen,
        fix=fix,
        leapt=leapt,
        step=step,
    )


def _error_of_weights(trainer: Trainer, step: int, seen: str) -> TrainingError:
    """Returns the error of weights that are no numbers after a step whose loss and gradient were."""
    return TrainingError(
        "the weights are not finite after step {step}",
        where="train",
        seen=seen,
        fix=_advice(trainer, step),
        step=step,
    )


def _advice(trainer: Trainer, before: int) -> str:
    """Returns what may help against numbers that cannot be right: lower rates, and weights that gave a finite loss.

    Those of a checkpoint before step ``before`` did: the update after it was made.
    """
    paths, section = trainer.checkpoints.paths(), trainer.recipe.train.optimizer
    good = [path for path in paths if step_of(path) < before]
    rates = {name.removeprefix("train/"): peak for name, peak in trainer.optimizers.peak_rates.items()}
    lower = " ".join(
        f"train.optimizer.{name}={peak / 3 if peak <= 1 else 1e-3:.2g}"  # a third of 1e30 would help nobody
        for name, peak in rates.items()
        if hasattr(section, name)
    )
    if trainer.from_step:
        # Another base in its place would have to leave out the step's own key `from`.
        return f"lower the rates in this step's own keys: {lower}"
    if good and not step_of(good[-1]):
        return (
            f"the last good checkpoint has the weights that the run began with; begin again with lower rates: {lower}"
        )
    if good:
        return (
            f"the last good checkpoint is {good[-1]}; go on from its weights with lower rates: "
            f"trainwright run RECIPE model.init_from={good[-1]} {lower}"
        )
    return f"{'no checkpoint is known to be good' if paths else 'no checkpoint yet'}; try lower rates: {lower}"
