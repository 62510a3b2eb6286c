"""Training: dataset in, checkpoint and events out; killed at any moment, it goes on to the same bits."""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import load


def __getattr__(name: str) -> Any:
    if name == "run":  # on demand: the check beside it is made without torch
        return load("trainwright.stages.train.stage:run", kind="stage")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
