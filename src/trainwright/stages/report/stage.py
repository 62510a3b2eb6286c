"""The stage: gather what the run left behind, render the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.artifact.events import Events
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.spec.recipe import Recipe
from trainwright.stages.report.page import render
from trainwright.stages.report.run_record import RunRecord

FILE = "report.html"


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Write the page; an input that is not there leaves a section that says how to make it.

    Raises:
        DataError: an artefact that is there cannot be read.
    """
    page = render(RunRecord(recipe=recipe, artifacts=inputs)).encode()
    write_atomically(out / FILE, page)
    return StageResult(summary={"file": FILE, "size_bytes": len(page), "stages": sorted(inputs)})
