"""What is known to be wrong before anything runs: every problem of every step at once, under its key of the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.store import Artifact
from trainwright.artifact.tokenizer import load_tokenizer
from trainwright.core.errors import MachineError, RecipeErrors, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.registry import load
from trainwright.pipeline.base.teacher import teacher_problems
from trainwright.pipeline.base.weights import base_problems
from trainwright.pipeline.graph import Step, upstream
from trainwright.pipeline.length_and_labels import dataset_problems
from trainwright.pipeline.steps import with_trained_model
from trainwright.spec.recipe import Recipe


class CheckedStep(NamedTuple):
    """What the problems of a step depend on: equal ones are checked once."""

    name: str
    tokenizer: Path | None
    """That it will work with, where it is known."""
    has_dataset: bool


def check(
    ahead: Iterable[Step], line: Iterable[Step], done: Mapping[str, Artifact], *, passed: set[CheckedStep] | None = None
) -> None:
    """Refuses what cannot end well.

    Args:
        ahead: the steps that are still to run.
        line: all steps.
        done: artefacts by step name; with a dataset's tokenizer prompts can be counted.
        passed: what was checked before and had no problem, which is not checked again; what is checked now is added.

    Raises:
        TrainwrightError: the problem, or all of them.
    """
    refusals = problems(ahead, line, done, passed=passed)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise RecipeErrors(refusals)


def refuse_workspace_in_corpus(line: Iterable[Step], root: Path) -> None:
    """Refuses a workspace that a run would read as corpus.

    Raises:
        RecipeError: names the path of the source that holds it.
    """
    for step in line:
        if step.stage.makes == "dataset":
            find = load("trainwright.stages.data.corpus.inside:workspace_problem", kind="check")
            if (problem := find(step.recipe.data, root)) is not None:
                raise step.placed(problem)


def problems(
    ahead: Iterable[Step],
    line: Iterable[Step],
    done: Mapping[str, Artifact],
    *,
    passed: set[CheckedStep] | None = None,
    load_torch: bool = True,
) -> tuple[TrainwrightError, ...]:
    """Returns each problem once; ``where`` is a key, ``stages.1.train.duration`` where a step's own keys hold it.

    Args:
        ahead: as ``check`` takes it.
        line: likewise.
        done: likewise.
        passed: likewise.
        load_torch: whether torch is asked, too, for the device and for the weights that a training begins with.
    """
    line, passed = tuple(line), set() if passed is None else passed
    unique: dict[tuple[str | None, str], TrainwrightError] = {}
    for step in ahead:
        if step.stage.check is None:
            continue
        tokenizer = _tokenizer(step, line, done)
        checked = CheckedStep(step.name, tokenizer, step.inputs.get("dataset") in done)
        if checked in passed:
            continue
        of_step = [step.placed(each) for each in _of_step(step, line, done, tokenizer, load_torch=load_torch)]
        if not of_step:
            passed.add(checked)
        for problem in of_step:
            unique.setdefault((problem.where, problem.what), problem)
    return tuple(unique.values())


def _of_step(
    step: Step, line: tuple[Step, ...], done: Mapping[str, Artifact], tokenizer: Path | None, *, load_torch: bool
) -> Iterator[TrainwrightError]:
    yield from load(str(step.stage.check), kind="check")(with_trained_model(step, line), tokenizer)
    if step.stage.makes == "checkpoint":
        yield from base_problems(step, line, tokenizer, load_torch=load_torch)
        yield from teacher_problems(step.recipe, tokenizer, load_torch=load_torch)
        if load_torch:
            yield from _no_device(step.recipe)
    if step.stage.makes in ("plan", "checkpoint"):
        yield from dataset_problems(step, done)


def _no_device(recipe: Recipe) -> Iterator[MachineError]:
    """Yields a device that is asked for by name; torch is loaded for such a recipe alone."""
    if recipe.train.exec.device in ("auto", "cpu") or find_spec("torch") is None:
        return
    try:
        load("trainwright.runtime.device:choose", kind="check")(recipe.train.exec.device)
    except MachineError as error:
        yield error


def _tokenizer(step: Step, line: tuple[Step, ...], done: Mapping[str, Artifact]) -> Path | None:
    """Returns the tokenizer that the step will work with, where it is known."""
    for each in reversed(upstream(line, step.name)):
        artifact = done.get(each.name)
        if artifact is not None and any(entry.path == TOKENIZER for entry in artifact.manifest.files):
            return artifact.path / TOKENIZER
    named = step.recipe.data.tokenizer.path
    if named is None:
        return None
    try:
        path = local_path(named)
        load_tokenizer(path)
    except TrainwrightError:
        return None  # reported under its own key
    return path
