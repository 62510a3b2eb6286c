"""The data stage. Importing it is cheap: ``run`` and what it needs are loaded when they are asked for."""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import load


def __getattr__(name: str) -> Any:
    if name == "run":
        return load("trainwright.stages.data.stage:run", kind="stage")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
