"""Reads ``catalog/stacks``: one TOML file per training framework, its fitted numbers with their errors and source."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.core.registry import did_you_mean
from trainwright.spec.stack import Dispatch, Stack, StackMemory, StackTime

_STACKS = files("trainwright") / "catalog" / "stacks"
DEFAULT = "default"
"""The stack of a framework that no file knows: what most of them do."""


def stack_names() -> tuple[str, ...]:
    """Names of all stacks in the catalogue, sorted."""
    return tuple(
        sorted(entry.name.removesuffix(".toml") for entry in _STACKS.iterdir() if entry.name.endswith(".toml"))
    )


def find_stack(name: str, *, release: str = "", settings: str = "") -> Stack | None:
    """The stack of that name, or the one that lists it among its aliases; None where there is none.

    Of several with one alias: the latest whose first release ``release`` has reached, and before all others one of
    whose ``marks`` stands in ``settings``. A name that none lists is the stack's one of whose ``words`` stands in it,
    the longest before shorter ones.
    """
    slug = _slug(name)
    found = [
        stack
        for stack in map(read_stack, stack_names())
        if slug == _slug(stack.name)
        or (
            slug in map(_slug, stack.aliases)
            and stack.since <= release
            and (not stack.marks or any(mark in settings for mark in stack.marks))
        )
    ]
    if found:
        return max(found, key=lambda stack: (bool(stack.marks), stack.since))
    return max(
        (stack for stack in map(read_stack, stack_names()) if _heard(stack, slug)),
        key=lambda stack: (_heard(stack, slug), stack.name),
        default=None,
    )


def _heard(stack: Stack, slug: str) -> int:
    """Letters of the longest word of the stack's that stands in a name."""
    return max((len(word) for word in stack.words if word in slug), default=0)


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
def read_stack(file: str) -> Stack:
    """The stack in the file of that name; ``memory`` or ``time`` = "other" stands for the other stack's."""
    table: dict[str, Any] = tomllib.loads((_STACKS / f"{file}.toml").read_text(encoding="utf-8"))
    for name in ("aliases", "marks", "schedules"):
        if name in table:
            table[name] = tuple(table[name])
    time = table.get("time", {})
    table["time"] = read_stack(time).time if isinstance(time, str) else StackTime(**time)
    memory = table.get("memory", {})
    table["memory"] = read_stack(memory).memory if isinstance(memory, str) else StackMemory(**memory)
    table["dispatch"] = Dispatch(**table.get("dispatch", {}))
    return Stack(**table)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
