"""What every stage takes and gives: ``run(recipe, inputs, out, events) -> StageResult``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.store import Artifact
from trainwright.spec.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """What goes into the manifest beside the files.

    ``summary``: the few numbers a reader wants first. ``execution``: how the work was done (workers, device, seconds).
    """

    summary: Mapping[str, Any]
    execution: Mapping[str, Any] = field(default_factory=dict)


StageFunction = Callable[[Recipe, Mapping[str, Artifact], Path, Events], StageResult]
"""``recipe``, the input artefacts by stage name, the directory to write into (it may hold parts of an interrupted run
of the very same fingerprint), and the event stream. Files whose names start with a dot do not become part of the
artefact."""
