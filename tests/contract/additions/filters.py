"""A filter that the project does not have."""

from __future__ import annotations


def unfinished(text: str) -> str | None:
    """Drops what its author has not finished."""
    return "unfinished" if "TODO" in text else None
