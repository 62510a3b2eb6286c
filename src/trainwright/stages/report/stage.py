"""The stage: reads the artefacts of a run and writes the page."""

from __future__ import annotations

from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.stages.report.page import render
from trainwright.stages.report.run_record import RunRecord

FILE = "report.html"


def run(context: Context) -> StageResult:
    """Writes the page; where an input is missing, its section says how to make it.

    Raises:
        DataError: an artefact that is there cannot be read.
    """
    artifacts = {artifact.manifest.stage: artifact for artifact in context.inputs.values()}
    page = render(RunRecord(recipe=context.recipe, artifacts=artifacts)).encode()
    write_atomically(context.out / FILE, page)
    return StageResult(summary={"file": FILE, "size_bytes": len(page), "stages": sorted(artifacts)})
