"""Runs stages in order: a complete artefact is a hit, a partial one is taken up, a manifest is written last."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trainwright import __version__
from trainwright.artifact.events import Events, Listener
from trainwright.artifact.stage import Context, StageFunction
from trainwright.artifact.store import MANIFEST, Artifact, writable, write_atomically, writing
from trainwright.artifact.workspace import Workspace
from trainwright.core.at_fault import blaming_at_fault
from trainwright.core.errors import DataError, MachineError, TrainwrightError
from trainwright.core.fingerprint import fingerprint
from trainwright.core.frozen import dataclass
from trainwright.core.registry import load
from trainwright.core.units import format_seconds
from trainwright.pipeline.graph import Stage, Step, inputs_of, maker, upstream
from trainwright.pipeline.preflight import CheckedStep, check, refuse_workspace_in_corpus
from trainwright.pipeline.steps import steps
from trainwright.spec.manifest import Manifest
from trainwright.spec.recipe import Recipe

_RECORDED_PACKAGES = ("torch", "numpy", "tokenizers", "gigatoken")


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """What a stage would be made of, and where it would be."""

    stage: Stage
    recipe: Recipe
    inputs: Mapping[str, Artifact]
    fingerprint: str
    identity: Mapping[str, object]
    digests: Mapping[str, str]


SECONDS = ".seconds"
"""File beside work under way: how long it took so far."""
CHILDREN = "children"
"""Folder of a workspace that holds the workspaces of child runs, one for each stage that asked for some."""


def run(
    recipe: Recipe,
    *,
    root: Path,
    upto: str | None = None,
    listeners: tuple[Listener, ...] = (),
    above: tuple[Path, ...] = (),
) -> dict[str, Artifact]:
    """Make every artefact up to a step, or all of them.

    Args:
        recipe: what to make.
        root: the workspace; made where it is absent.
        upto: the last step, called like its stage where the recipe lists no steps; None runs all of them.
        listeners: called with every event, for progress.
        above: workspaces whose artefacts are taken where this one has none; nothing is written there.

    Returns:
        The artefacts by step name, in running order.

    Raises:
        RecipeErrors: the recipe's list of steps is wrong.
        RecipeError: the workspace would be read as corpus.
        TrainwrightError: a stage failed; all finished stages and parts are kept.
    """
    line = steps(recipe)
    if upto is not None:
        line = upstream(line, upto)
    refuse_workspace_in_corpus(line, root)
    workspace = Workspace(root, above=above)
    first, passed = _address(line, 0, {}, root), set[CheckedStep]()
    if workspace.find(first.stage.name, first.fingerprint) is None:
        check(line, line, {}, passed=passed)  # here already: what is refused leaves no workspace behind
    with writing(root):
        # Where all is there already nothing is written, so that a workspace may be read-only.
        events = Events(root / "events.jsonl" if writable(root) else None, run=recipe.name, listeners=listeners)
    done: dict[str, Artifact] = {}
    with events:
        for index, step in enumerate(line):
            here = _address(line, index, done, root)
            artifact = workspace.find(step.stage.name, here.fingerprint)
            if artifact is None:
                # Before each piece of work: once the dataset is there, prompts are counted in its tokens.
                check(line[index:], line, done, passed=passed)
                artifact = _make(step, here, workspace, events)
            else:
                workspace.check(artifact)
                events.emit("stage", step.name, 1.0, text="cached")
            done[step.name] = artifact
    return done


def find(recipe: Recipe, *, root: Path, upto: str) -> dict[str, Artifact]:
    """Returns the artefacts that are there, without making any; a step whose inputs are missing is not there."""
    done: dict[str, Artifact] = {}
    line = upstream(steps(recipe), upto)
    for index, step in enumerate(line):
        if inputs_of(step, done).keys() < step.inputs.keys():
            continue
        here = _address(line, index, done, root)
        artifact = Workspace(root).find(step.stage.name, here.fingerprint)
        if artifact is not None:
            done[step.name] = artifact
    return done


def left_here(stage: Stage, recipe: Recipe, inputs: Mapping[str, Artifact], *, root: Path) -> Artifact | None:
    """Returns what a stage makes of a recipe and, among these, of its inputs, as an earlier run left it, or None.

    Where what it is made from is not here nobody can tell which one it is, and there is none either.

    Raises:
        DataError: it is here and cannot be opened.
    """
    if next(root.glob(f"{stage.name}-*/{MANIFEST}"), None) is None:
        return None  # nothing is digested in vain
    try:
        here = address(stage, recipe, {role: inputs[role] for role in stage.needs if role in inputs}, root)
    except DataError:
        return None
    return Workspace(root).find(stage.name, here.fingerprint)


def _address(line: tuple[Step, ...], index: int, done: Mapping[str, Artifact], root: Path) -> Address:
    """Returns the address of a step's result; what stands in the way of it is reported under its key of the recipe."""
    step = line[index]
    with step.placing():
        try:
            return address(step.stage, step.recipe, inputs_of(step, done), root)
        except TrainwrightError:
            check(line[index:], line, done)
            raise


def address(stage: Stage, recipe: Recipe, inputs: Mapping[str, Artifact], root: Path) -> Address:
    """Returns the content address of a stage's result for this recipe and these inputs by role."""
    recipe = stage.settled(recipe, inputs)
    identity = stage.identity(recipe, inputs)
    digests = {
        role: inputs[role].digest(need.files) for role, need in stage.needs.items() if need.files and role in inputs
    }
    digests |= stage.outside(recipe, root)
    code = fingerprint(stage=stage.name, version=stage.version, identity=identity, inputs=digests)
    return Address(stage=stage, recipe=recipe, inputs=inputs, fingerprint=code, identity=identity, digests=digests)


def _make(step: Step, here: Address, workspace: Workspace, events: Events) -> Artifact:
    stage = here.stage.name
    with step.placing(), workspace.lock(stage, here.fingerprint):
        artifact = workspace.find(stage, here.fingerprint)
        if artifact is not None:
            events.emit("stage", step.name, 1.0, text="cached")
            return artifact
        events.emit("stage", step.name, 0.0, text="started")
        artifact = _carry_out(here, workspace, events)
        # The number of the manifest, and so of every table: that of all sessions.
        took = format_seconds(artifact.manifest.execution["seconds"])
        events.emit("stage", step.name, 1.0, text=f"done in {took}")
        return artifact


def _carry_out(here: Address, workspace: Workspace, events: Events) -> Artifact:
    """Run the stage in its draft and turn that into the artefact."""
    out = workspace.draft(here.stage.name, here.fingerprint)
    started = time.time()
    written = here.recipe.model_dump(mode="json", by_alias=True)
    with writing(out), _timed(out) as elapsed:
        function: StageFunction = load(here.stage.run, kind="stage")
        with blaming_at_fault(written):
            result = function(_context(here, workspace, out, events))
    execution = dict(result.execution) | {
        "started_unix_s": round(started, 3),
        "seconds": round(elapsed(), 3),
        "trainwright": __version__,
        "python": platform.python_version(),
        "machine": platform.node(),
        "packages": _versions(),
    }
    manifest = Manifest(
        kind=here.stage.makes,
        stage=here.stage.name,
        stage_version=here.stage.version,
        fingerprint=here.fingerprint,
        identity=here.identity,
        inputs=here.digests,
        files=(),
        summary=result.summary,
        execution=execution,
    )
    return workspace.commit(out, manifest)


def _context(here: Address, workspace: Workspace, out: Path, events: Events) -> Context:
    below = workspace.root / CHILDREN / workspace.path(here.stage.name, here.fingerprint).name

    def child_runs(recipe: Recipe, *, upto: str | None, told: bool) -> dict[str, Artifact]:
        above = (workspace.root, *workspace.above)
        return run(recipe, root=below, upto=upto, listeners=events.listeners if told else (), above=above)

    aside = {kind: left_here(maker(kind), here.recipe, here.inputs, root=workspace.root) for kind in here.stage.aside}
    return Context(
        recipe=here.recipe,
        inputs={kind: artifact for kind, artifact in aside.items() if artifact is not None} | dict(here.inputs),
        digests=here.digests,
        out=out,
        events=events,
        root=workspace.root,
        child_runs=child_runs,
    )


@contextmanager
def _timed(out: Path) -> Iterator[Callable[[], float]]:
    """Seconds spent on this artefact over all interruptions, kept beside the work where there is some."""
    before = _seconds_in(out / SECONDS)
    start = time.perf_counter()

    def elapsed() -> float:
        return before + time.perf_counter() - start

    done = False
    try:
        yield elapsed
        done = True
    finally:
        if not done and out.is_dir() and all(path.name == SECONDS for path in out.iterdir()):
            with suppress(OSError):  # what is refused leaves no folder behind
                (out / SECONDS).unlink(missing_ok=True)
                out.rmdir()
        if out.is_dir():
            with suppress(OSError, MachineError):  # what ended the stage, such as a full disk, is what a user must hear
                write_atomically(out / SECONDS, f"{elapsed():.3f}".encode())


def _seconds_in(path: Path) -> float:
    """Returns the seconds that are kept; none where a killed process left no number, for they change no result."""
    try:
        seconds = float(path.read_text())
    except (OSError, ValueError):
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _versions() -> dict[str, str]:
    versions = {}
    for package in _RECORDED_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    return versions
