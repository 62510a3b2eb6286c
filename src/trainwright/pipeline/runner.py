"""Runs stages in order: a complete artefact is a hit, a partial one is taken up, a manifest is written last."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trainwright import __version__
from trainwright.artifact.events import Events, Listener
from trainwright.artifact.stage import StageFunction
from trainwright.artifact.store import Artifact, Workspace, writing
from trainwright.core.fingerprint import fingerprint
from trainwright.core.registry import load
from trainwright.pipeline.graph import STAGES, Stage, upstream
from trainwright.spec.manifest import Manifest
from trainwright.spec.recipe import Recipe

_RECORDED_PACKAGES = ("torch", "numpy", "tokenizers", "gigatoken")


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """What a stage would be made of, and where it would be."""

    stage: Stage
    fingerprint: str
    identity: Mapping[str, object]
    digests: Mapping[str, str]


def run(
    recipe: Recipe, *, root: Path, upto: str | None = None, listeners: tuple[Listener, ...] = ()
) -> dict[str, Artifact]:
    """Make every artefact up to a stage, or all of them.

    Args:
        recipe: what to make.
        root: the workspace; made where it is absent.
        upto: the last stage; None runs all of them.
        listeners: called with every event, for progress.

    Returns:
        The artefacts by stage name, in running order.

    Raises:
        TrainwrightError: a stage failed; all finished stages and parts are kept.
    """
    stages = tuple(STAGES.values()) if upto is None else upstream(upto)
    workspace = Workspace(root)
    with writing(root):
        events = Events(root / "events.jsonl", run=recipe.name, listeners=listeners)
    done: dict[str, Artifact] = {}
    with events:
        for stage in stages:
            done[stage.name] = _make(address(stage, recipe, done, root), recipe, done, workspace, events)
    return done


def find(recipe: Recipe, *, root: Path, upto: str) -> dict[str, Artifact]:
    """The artefacts that are already there, without making any; stops at the first that is not."""
    done: dict[str, Artifact] = {}
    for stage in upstream(upto):
        if not all(name in done for name in stage.needs):
            continue
        here = address(stage, recipe, done, root)
        found = Workspace(root).find(stage.name, here.fingerprint)
        if found is not None:
            done[stage.name] = found
    return done


def address(stage: Stage, recipe: Recipe, inputs: Mapping[str, Artifact], root: Path) -> Address:
    """The content address of a stage's result for this recipe and these inputs."""
    identity = stage.identity(recipe, inputs)
    digests = {name: inputs[name].digest(patterns) for name, patterns in stage.inputs.items()}
    digests |= stage.outside(recipe, root)
    code = fingerprint(stage=stage.name, version=stage.version, identity=identity, inputs=digests)
    return Address(stage=stage, fingerprint=code, identity=identity, digests=digests)


def _make(
    here: Address, recipe: Recipe, inputs: Mapping[str, Artifact], workspace: Workspace, events: Events
) -> Artifact:
    name = here.stage.name
    found = workspace.find(name, here.fingerprint)
    if found is not None:
        events.emit("stage", name, 1.0, text="cached")
        return found
    with workspace.lock(name, here.fingerprint):
        found = workspace.find(name, here.fingerprint)
        if found is not None:
            events.emit("stage", name, 1.0, text="cached")
            return found
        events.emit("stage", name, 0.0, text="started")
        out = workspace.draft(name, here.fingerprint)
        started = time.time()
        function: StageFunction = load(here.stage.run, kind="stage")
        with _timed(out) as elapsed, writing(out):
            result = function(recipe, {key: inputs[key] for key in here.stage.needs}, out, events)
        execution = dict(result.execution) | {
            "started_unix_s": round(started, 3), "seconds": round(elapsed(), 3), "trainwright": __version__,
            "python": platform.python_version(), "machine": platform.node(), "packages": _versions(),
        }  # fmt: skip
        artifact = workspace.commit(
            out,
            Manifest(
                stage=name, stage_version=here.stage.version, fingerprint=here.fingerprint, identity=here.identity,
                inputs=here.digests, files=(), summary=result.summary, execution=execution,
            ),
        )  # fmt: skip
        events.emit("stage", name, 1.0, text="done")
        return artifact


@contextmanager
def _timed(out: Path) -> Iterator[Callable[[], float]]:
    """Seconds spent on this artefact over all interruptions, kept beside the work in ``.seconds``."""
    before = float((out / ".seconds").read_text()) if (out / ".seconds").is_file() else 0.0
    start = time.perf_counter()

    def elapsed() -> float:
        return before + time.perf_counter() - start

    try:
        yield elapsed
    finally:
        if out.is_dir():
            (out / ".seconds").write_text(f"{elapsed():.3f}")


def _versions() -> dict[str, str]:
    found = {}
    for package in _RECORDED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found
