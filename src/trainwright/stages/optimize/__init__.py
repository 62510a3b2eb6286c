"""The ladder: from a naive configuration of a training to a tuned one, a measured technique at a time. No torch."""

from __future__ import annotations

from trainwright.stages.optimize.stage import run

__all__ = ["run"]
