"""Training: dataset in, checkpoint and events out; killed at any moment, it goes on to the same bits."""

from __future__ import annotations

from trainwright.stages.train.stage import run

__all__ = ["run"]
