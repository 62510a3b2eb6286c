"""The artefacts of a recipe: a row for each artefact, and its place in the JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.core.units import format_bytes, format_seconds
from trainwright.render.page import Page
from trainwright.render.results.summaries import summary_line

if TYPE_CHECKING:
    from trainwright.artifact.store import Artifact


def documents(made: Mapping[str, Artifact]) -> dict[str, Any]:
    """Returns the JSON document of each artefact."""
    return {
        name: {
            "path": artifact.path,
            "fingerprint": artifact.manifest.fingerprint,
            "seconds": artifact.manifest.execution.get("seconds"),
            "summary": artifact.summary,
        }
        for name, artifact in made.items()
    }


def show(made: Mapping[str, Artifact], page: Page) -> None:
    """Shows a line for each artefact with its headline numbers, then where to look."""
    rows = [
        (
            name,
            format_seconds(artifact.manifest.execution["seconds"]),
            format_bytes(sum(entry.size_bytes for entry in artifact.manifest.files)),
            summary_line(artifact.manifest.stage, artifact.summary),
        )
        for name, artifact in made.items()
    ]
    page.table(("stage", "took", "size", "result"), rows)
    for artifact in made.values():
        if artifact.manifest.kind == "answer" and "answer" in artifact.summary:
            page.line()
            in_chat = artifact.summary.get("chat", False)
            page.heading("The served model was asked:" if in_chat else "The served model was asked to go on from:")
            page.line(artifact.summary["prompt"] + (" ▸ " if in_chat else "▸") + artifact.summary["answer"])
    page.line()
    for name, artifact in made.items():
        if artifact.manifest.kind in ("checkpoint", "bundle", "page"):
            where = artifact.path / "report.html" if artifact.manifest.kind == "page" else artifact.path
            page.line(f"{name}: {where}")
