"""A small dataset (tests/fixtures/words.py)."""

from __future__ import annotations

from fixtures.words import dataset

__all__ = ["dataset"]
