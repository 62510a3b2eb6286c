"""One self-contained HTML page about a run."""

from __future__ import annotations

from trainwright.stages.report.stage import run

__all__ = ["run"]
