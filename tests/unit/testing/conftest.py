"""``tiny``: the small models of tests/fixtures/tiny_models.py."""

from __future__ import annotations

from fixtures.trained import tiny

__all__ = ["tiny"]
