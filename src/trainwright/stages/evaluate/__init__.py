"""Measures a trained model on held-out text and places it beside compressors and n-grams."""

from __future__ import annotations

from trainwright.stages.evaluate.stage import run

__all__ = ["run"]
