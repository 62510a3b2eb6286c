"""Looks at this machine and measures what it can do; the planner rests on what is found here."""

from __future__ import annotations

from trainwright.stages.doctor.stage import examine, run

__all__ = ["examine", "run"]
