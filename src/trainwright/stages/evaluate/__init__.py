"""Measures a trained model on held-out text and places it beside compressors and n-grams."""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import load


def __getattr__(name: str) -> Any:
    if name == "run":  # on demand: the check beside it is made without torch
        return load("trainwright.stages.evaluate.stage:run", kind="stage")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
