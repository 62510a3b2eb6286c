"""The stage: naive configuration, then one technique after the other; ``ladder.json`` and ``tuned.yaml``.

Each technique is measured between two measurements without it (A, B, A), each in a process of its own. What is decided
is written down at once, so that an interrupted ladder goes on with the technique that was being measured. What was not
decided stays as the recipe had it; in the end the tuned recipe is measured between two measurements of the given one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError, DoesNotFit, TrainwrightError
from trainwright.core.paths import read_object
from trainwright.core.records import from_json, to_json
from trainwright.hardware.machine.record import FILE as MACHINE_FILE
from trainwright.hardware.machine.record import Machine, read_machine
from trainwright.planner.evidence.ladder import (
    FILE,
    TUNED_FILE,
    Comparison,
    Ladder,
    Measurement,
    PredictedStep,
    Rung,
)
from trainwright.render.recipe import yaml_lines
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.optimize import TechniqueName
from trainwright.stages.optimize.intervals import gain
from trainwright.stages.optimize.process import measure
from trainwright.stages.optimize.techniques import (
    TECHNIQUES,
    Changes,
    Situation,
    Technique,
    decided,
    naive,
    with_changes,
)
from trainwright.stages.optimize.verdict import better, loss_difference, verdict

SAVED, GIVEN = "rungs", "given"
Saved = TypeVar("Saved", Rung, Comparison)


def run(context: Context) -> StageResult:
    """Climb the ladder, from where an interrupted run left it.

    Raises:
        DoesNotFit: not even the naive configuration with recomputation fits.
        TrainingError: the configuration so far cannot be trained.
        DataError: the dataset or the machine's record is damaged.
    """
    examined = context.input("machine")
    examined.verify()
    context.input("dataset").verify()
    machine = read_machine(examined.file(MACHINE_FILE))
    ladder = _Climb(context=context, machine=machine).climb()
    document = to_json(ladder)
    write_atomically(context.out / FILE, json.dumps(document, indent=1).encode() + b"\n")
    tuned = with_changes(context.recipe, ladder.tuned).model_dump(mode="json", by_alias=True, exclude_unset=True)
    text = "".join(f"{line}\n" for line, _ in yaml_lines(tuned))
    write_atomically(context.out / TUNED_FILE, text.encode())
    first = ladder.first
    summary = {
        "gain": ladder.gain.mid,
        "gain_low": ladder.gain.low,
        "gain_high": ladder.gain.high,
        "predicted_gain": ladder.predicted_gain,
        "over_given": None if ladder.given is None or ladder.given.gain is None else ladder.given.gain.mid,
        "kept": [rung.technique for rung in ladder.kept],
        "naive_tokens_per_s": None if first is None else first.tokens_per_s,
    }
    return StageResult(summary=summary, execution={"device": ladder.device, "steps": ladder.steps})


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A configuration with its plan."""

    recipe: Recipe
    plan: Plan
    folder: Path

    @property
    def predicted(self) -> PredictedStep:
        estimate = self.plan.estimate
        return PredictedStep(tokens_per_s=estimate.tokens_per_s, memory_bytes=estimate.memory.total_bytes)


@dataclass(frozen=True, kw_only=True)
class _Climb:
    """One ladder: its inputs, and how its configurations are planned and measured."""

    context: Context
    machine: Machine

    def climb(self) -> Ladder:
        """Returns every rung, those of an earlier run as they were decided then."""
        section = self.context.recipe.optimize
        names = tuple(TECHNIQUES) if section.techniques == "all" else section.techniques
        begun = dict(naive(self.context.recipe))
        now = self._start(begun)
        start, rungs = dict(now), []
        # Recomputation that even the naive configuration needs is decided; all else that is naive is not.
        tuned = {key: value for key, value in start.items() if key not in begun}
        device = self._planned(now).plan.cluster.device.name
        (self.context.out / SAVED).mkdir(exist_ok=True)
        tolerance, damaged = (TECHNIQUES["recompute"].tolerance if tuned else 0.0), False
        for number, name in enumerate(names):
            path = self.context.out / SAVED / f"{number}-{name}.json"
            rung = self._saved(path, Rung)
            damaged |= rung is None and path.exists()
            if rung is None or (damaged and rung.predicted_before != self._planned(now).predicted):
                rung = self._rung(name, now)
                write_atomically(path, json.dumps(to_json(rung)).encode())
                self.context.events.message(told(rung))
            put = decided(self.context.recipe, rung, now)
            tuned |= put
            tolerance += rung.tolerance if put else 0.0
            if rung.kept:
                now |= rung.changes
            rungs.append(rung)
        given = self._beside_given(tuned, tolerance=tolerance, again=damaged)
        return Ladder(
            recipe=self.context.recipe.name,
            device=device,
            steps=section.steps,
            warmup_steps=section.warmup_steps,
            start=start,
            tuned={} if given is not None and given.chosen == "given" else tuned,
            rungs=tuple(rungs),
            given=given,
        )

    def _saved(self, path: Path, kind: type[Saved]) -> Saved | None:
        """Returns what an earlier run wrote down; None where it wrote nothing, or something else is there now."""
        if not path.exists():
            return None
        try:
            return from_json(kind, read_object(path), where=str(path))
        except DataError as error:
            self.context.events.message(f"measured again, for the file of an earlier run is damaged: {error}")
            return None

    def _start(self, naive: dict[str, Any]) -> dict[str, Any]:
        """Returns the naive keys, with recomputation where they do not fit without."""
        try:
            self._planned(naive)
        except DoesNotFit:
            smaller = naive | {"train.recompute": "full"}
            self._planned(smaller)
            return smaller
        return naive

    def _rung(self, name: TechniqueName, now: Changes) -> Rung:
        """Returns a technique that was tried, or why it was not."""
        technique, current = TECHNIQUES[name], self._planned(now)
        rung = Rung(technique=name, why=technique.why, tolerance=technique.tolerance, kept=False, reason="")
        situation = Situation(
            asked=self.context.recipe,
            recipe=current.recipe,
            plan=current.plan,
            planned=lambda changes: self._planned({**now, **changes}).plan,
            facts=self.machine.facts,
        )
        try:
            changes = technique.changes(situation)
            if isinstance(changes, str):
                return replace(rung, reason=changes)
            other = self._planned({**now, **changes})
        except TrainwrightError as error:
            return replace(rung, reason=f"not planned: {error}")
        rung = replace(rung, changes=changes, predicted_before=current.predicted, predicted=other.predicted)
        return self._measured(rung, technique, current, other)

    def _measured(self, rung: Rung, technique: Technique, current: _Planned, other: _Planned) -> Rung:
        """Returns the technique with what was measured before, with and after it, and what follows."""
        before = self._measure(current, f"{rung.technique}: without")
        try:
            with_it = self._measure(other, f"{rung.technique}: with it")
        except TrainwrightError as error:
            return replace(rung, before=before, reason=str(error))
        after = self._measure(current, f"{rung.technique}: without, again")
        ratio = gain(before.step_s, with_it.step_s, after.step_s)
        difference = loss_difference(before, with_it)
        kept, reason = verdict(
            before,
            with_it,
            ratio,
            difference=difference,
            tolerance=technique.tolerance,
            run_steps=current.plan.workload.steps,
            of_memory=technique.of_memory,
            available_bytes=current.plan.estimate.memory_available_bytes,
        )
        return replace(
            rung,
            before=before,
            with_it=with_it,
            after=after,
            gain=ratio,
            loss_difference=difference,
            kept=kept,
            reason=reason,
        )

    def _beside_given(self, tuned: Changes, *, tolerance: float, again: bool) -> Comparison | None:
        """Returns the tuned recipe beside the given one; None where they are one.

        Args:
            tuned: what was decided.
            tolerance: the relative difference of the loss that it may cause.
            again: whether what an earlier run measured may be of something else.
        """
        asked, path = self.context.recipe, self.context.out / SAVED / f"{GIVEN}.json"
        if with_changes(asked, tuned) == with_changes(asked, {}):
            return None
        if not again and (saved := self._saved(path, Comparison)) is not None:
            return saved
        found = self._compared(tuned, tolerance=tolerance)
        write_atomically(path, json.dumps(to_json(found)).encode())
        self.context.events.message(f"as given: {found.reason}")
        return found

    def _compared(self, tuned: Changes, *, tolerance: float) -> Comparison:
        """Returns the tuned recipe measured between two measurements of the given one, and which is taken."""
        try:
            given = self._planned({})
            before = self._measure(given, "as given")
        except TrainwrightError as error:
            return Comparison(chosen="tuned", reason=f"the recipe as given cannot be trained here: {error}")
        found = Comparison(chosen="given", reason="", before=before, predicted_before=given.predicted)
        try:
            other = self._planned(tuned)
            with_it = self._measure(other, "tuned")
        except TrainwrightError as error:
            return replace(found, reason=f"what was decided cannot be trained together: {error}")
        after = self._measure(given, "as given, again")
        ratio = gain(before.step_s, with_it.step_s, after.step_s)
        difference = loss_difference(before, with_it)
        chosen, reason = better(ratio, updates=len(with_it.step_s), difference=difference, tolerance=tolerance)
        return replace(
            found,
            chosen=chosen,
            reason=reason,
            tuned=with_it,
            after=after,
            gain=ratio,
            predicted=other.predicted,
            loss_difference=difference,
            tolerance=tolerance,
        )

    def _planned(self, changes: Mapping[str, Any]) -> _Planned:
        """Returns a configuration with the plan that the pipeline makes of it."""
        recipe = with_changes(self.context.recipe, changes)
        artifact = self.context.child(recipe, upto="plan", told=False)["plan"]
        plan = read_plan(artifact.file(PLAN))
        return _Planned(recipe=recipe, plan=plan, folder=artifact.path)

    def _measure(self, planned: _Planned, name: str) -> Measurement:
        section, events = self.context.recipe.optimize, self.context.events
        total = section.warmup_steps + section.steps
        roles = ("dataset", "base")
        inputs = {role: str(each.path) for role, each in self.context.inputs.items() if role in roles}
        request = {
            "recipe": planned.recipe.model_dump(mode="json", by_alias=True, exclude_unset=True),
            "inputs": inputs | {"plan": str(planned.folder)},
            "warmup_steps": section.warmup_steps,
            "steps": section.steps,
        }
        return measure(request, say=lambda done: events.progress(name, done, total=total, unit="steps"))


def told(rung: Rung) -> str:
    """Returns a rung in one line, as it is told when it is done."""
    verb = "kept" if rung.kept else "not kept"
    if rung.gain is None:
        return f"{rung.technique}: {'not tried: ' if rung.before is None else ''}{rung.reason}"
    ratio = rung.gain
    predicted = "" if rung.predicted_gain is None else f", predicted {rung.predicted_gain:.2f}x"
    return f"{rung.technique}: {ratio.mid:.2f}x ({ratio.low:.2f} to {ratio.high:.2f}){predicted}: {verb}: {rung.reason}"
