"""Reads ``catalog/stacks``: one TOML file per training framework, its fitted numbers with their errors and source."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.core.registry import did_you_mean
from trainwright.spec.stack import Stack, StackMemory, StackTime

_STACKS = files("trainwright") / "catalog" / "stacks"
DEFAULT = "default"
"""The stack of a framework that no file knows: what most of them do."""


def stack_names() -> tuple[str, ...]:
    """Names of all stacks in the catalogue, sorted."""
    return tuple(
        sorted(entry.name.removesuffix(".toml") for entry in _STACKS.iterdir() if entry.name.endswith(".toml"))
    )


def find_stack(name: str) -> Stack | None:
    """The stack of that name, or the one that lists it among its aliases; None where there is none."""
    slug = _slug(name)
    return next(
        (stack for stack in map(read_stack, stack_names()) if slug in {_slug(stack.name), *map(_slug, stack.aliases)}),
        None,
    )


def stack(name: str, *, where: str | None = None) -> Stack:
    """The stack of that name.

    Raises:
        RecipeError: the catalogue does not know it.
    """
    found = find_stack(name)
    if found is None:
        raise RecipeError(
            "unknown software stack", where=where, seen=repr(name), expected=f"one of {', '.join(stack_names())}",
            fix=did_you_mean(name, list(stack_names())) or "add a file to catalog/stacks",
        )  # fmt: skip
    return found


@cache
def read_stack(name: str) -> Stack:
    """The stack in the file of that name."""
    table: dict[str, Any] = tomllib.loads((_STACKS / f"{name}.toml").read_text(encoding="utf-8"))
    table["aliases"] = tuple(table.get("aliases", ()))
    table["time"] = StackTime(**table.get("time", {}))
    table["memory"] = StackMemory(**table.get("memory", {}))
    return Stack(**table)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
