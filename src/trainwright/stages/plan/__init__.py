"""Says whether a recipe fits, how long it takes and what it costs, before anything is started. No torch."""

from __future__ import annotations

from trainwright.stages.plan.build import build_plan
from trainwright.stages.plan.stage import run

__all__ = ["build_plan", "run"]
