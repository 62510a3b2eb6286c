"""Holds the plan against what training measured, and keeps the comparison."""

from __future__ import annotations

from trainwright.stages.audit.stage import run

__all__ = ["run"]
