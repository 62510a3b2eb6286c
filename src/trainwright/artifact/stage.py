"""What every stage takes and gives: ``run(context) -> StageResult``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainwright.artifact.events import Events
from trainwright.artifact.store import Artifact
from trainwright.core.errors import DataError
from trainwright.core.spelling import with_article

if TYPE_CHECKING:
    from trainwright.spec.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """What goes into the manifest beside the files.

    ``summary``: the few numbers a reader wants first. ``execution``: how the work was done (workers, device, seconds).
    """

    summary: Mapping[str, Any]
    execution: Mapping[str, Any] = field(default_factory=dict)


class ChildRuns(Protocol):
    """Runs a recipe of the stage's own making; ``Context.child`` says how."""

    def __call__(self, recipe: Recipe, *, upto: str | None, told: bool) -> dict[str, Artifact]:
        """Returns the artefacts by stage name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """All that a stage works with.

    Attributes:
        recipe: what to make.
        inputs: the input artefacts by role; ``input`` looks one up and checks its kind.
        out: the directory to write into. It may hold parts of an interrupted run of the very same fingerprint. Files
            and folders whose names start with a dot, at any depth, do not become part of the artefact.
        events: where the stage reports.
        root: the workspace, for what belongs to no artefact, such as the ledger.
        digests: of the inputs by role, and of what comes from outside by name (``corpus``): what the artefact's address
            is made of. A stage that reads something from outside compares it; empty where it runs without an address.
        began_s: when the stage began, by ``time.monotonic``, which all processes of a host share.
        child_runs: how ``child`` runs a recipe; None where there is no pipeline around the stage.
    """

    recipe: Recipe
    out: Path
    events: Events
    root: Path
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    child_runs: ChildRuns | None = None

    def input(self, role: str, *, kind: str | None = None) -> Artifact:
        """Returns the input artefact of a role.

        Args:
            role: for example ``dataset``.
            kind: the kind that it must have; None where the kind is called like the role.

        Raises:
            DataError: no artefact has the role, or it is of another kind.
        """
        if role not in self.inputs:
            roles = ", ".join(self.inputs) or "none"
            raise DataError("this stage needs an artefact as its {role}", seen=roles, role=role)
        return of_kind(self.inputs[role], kind or role)

    def optional_input(self, role: str, *, kind: str | None = None) -> Artifact | None:
        """Returns the same, or None where no artefact has the role."""
        return self.input(role, kind=kind) if role in self.inputs else None

    def child(self, recipe: Recipe, *, upto: str | None = None, told: bool = True) -> dict[str, Artifact]:
        """Run another recipe in a workspace below this stage's, as a tuning trial does.

        What the parent's workspace already holds is not made again. What the child makes outlives the stage, so that
        an interrupted stage finds its finished children.

        Args:
            recipe: the child's.
            upto: the last stage; None runs all of them.
            told: whether the child's progress is this stage's.

        Returns:
            The artefacts by stage name.

        Raises:
            TrainwrightError: a stage of the child failed.
            RuntimeError: the stage runs without a pipeline.
        """
        if self.child_runs is None:
            raise RuntimeError("this context has no pipeline to run a child in")
        return self.child_runs(recipe, upto=upto, told=told)


def of_kind(artifact: Artifact, kind: str) -> Artifact:
    """Returns the artefact itself.

    Raises:
        DataError: it is of another kind.
    """
    if artifact.manifest.kind != kind:
        raise DataError(
            "an artefact of another kind", where=artifact.path, seen=artifact.manifest.kind, expected=with_article(kind)
        )
    return artifact


StageFunction = Callable[[Context], StageResult]
