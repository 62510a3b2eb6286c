"""Trained models and artefacts of them."""

from __future__ import annotations

from fixtures.trained import make_trained, recipe, tiny

__all__ = ["make_trained", "recipe", "tiny"]
