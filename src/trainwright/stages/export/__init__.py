"""Export: the trained model in the forms that other tools read, checked by reading them back."""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import load


def __getattr__(name: str) -> Any:
    if name == "run":  # on demand: the check beside it is made without torch
        return load("trainwright.stages.export.stage:run", kind="stage")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
