"""Reads ``catalog/stacks``: one TOML file per training framework, its fitted numbers with their errors and source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_args

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import did_you_mean, unknown
from trainwright.hardware.catalogue import tables
from trainwright.spec.stack import Dispatch, Remade, Stack, StackMemory, StackTime, Support, Usual

_STACKS = "stacks"
OURS = "trainwright"
"""The stack of this project's trainer, which its ledgers are of."""
DEFAULT, DEFAULT_PARALLEL = "default", "default-parallel"
"""The stacks of a framework that no file knows, by its layout: what most of them do."""


def stack_names() -> tuple[str, ...]:
    """Returns names of all stacks in the catalogue, sorted."""
    return tables.names(_STACKS)


def offered() -> tuple[str, ...]:
    """Returns names of the stacks that users are offered, sorted."""
    return tuple(name for name in stack_names() if not read_stack(name).hidden)


def find_stack(name: str, *, release: str = "", settings: str = "", by_word: bool = True) -> Stack | None:
    """Returns the stack of that name, or the one that lists it among its aliases; None where there is none.

    Of several with one alias: the latest whose first release ``release`` has reached, and before all others one of
    whose ``marks`` stands in ``settings``. ``by_word`` a name that none lists, as sources print it, is the stack's
    one of whose ``words`` stands in it, the longest before shorter ones.
    """
    slug = _slug(name)
    named = (each for each, others in tables.listed(_STACKS).items() if slug in map(_slug, (each, *others)))
    matches = [
        stack
        for stack in map(read_stack, named)
        if slug == _slug(stack.name)
        or (
            slug in map(_slug, stack.aliases)
            and stack.since <= release
            and (not stack.marks or any(mark in settings for mark in stack.marks))
        )
    ]
    if matches:
        return max(matches, key=lambda stack: (bool(stack.marks), stack.since))
    if not by_word:
        return None
    return max(
        (stack for stack in map(read_stack, stack_names()) if _heard(stack, slug)),
        key=lambda stack: (_heard(stack, slug), stack.name),
        default=None,
    )


def _heard(stack: Stack, slug: str) -> int:
    """Letters of the longest word of the stack's that stands in a name."""
    return max((len(word) for word in stack.words if word in slug), default=0)


def stack(name: str, *, where: str | None = None) -> Stack:
    """Returns the stack of that name, or whose word it is (``megatron``).

    Raises:
        RecipeError: the catalogue does not know it.
    """
    stack = find_stack(name, by_word=False) or _of_word(_slug(name))
    if stack is None:
        raise RecipeError(
            "unknown software stack",
            where=where,
            seen=repr(name),
            expected=f"one of {', '.join(offered())}",
            fix=did_you_mean(name, list(offered())) or "add a file to catalog/stacks",
        )
    return stack


def _of_word(slug: str) -> Stack | None:
    """Returns the stack that users are offered one of whose words a name is as a whole."""
    return next((each for each in map(read_stack, offered()) if slug in each.words), None)


def unknown_stack(*, divides: bool, shards: str) -> Stack:
    """Returns the stack of a framework that no file knows, by how it shares a model.

    What divides layers or tensors over devices (``divides``), or the optimizer's state alone, is written like Megatron:
    fused kernels, master weights, gradients in one buffer. What runs on one device, replicates, or shards everything is
    PyTorch with automatic mixed precision. ``shards`` is what data-parallel ranks share: ``ddp``, ``zero1``, ``fsdp``.
    """
    states_alone, everything = shards in ("zero1", "zero2"), shards in ("fsdp", "hfsdp", "hsdp", "zero3")
    return read_stack(DEFAULT_PARALLEL if states_alone or (divides and not everything) else DEFAULT)


@cache
def read_stack(file: str) -> Stack:
    """Returns the stack of that file; ``memory`` or ``time`` = "other" stands for the other's, with its fit.

    A table with ``of = "other"`` is the other's, but for what stands in it.

    Raises:
        RecipeError: the other has none of its own; or a key is unknown.
    """
    table: dict[str, Any] = dict(tables.table(_STACKS, file))
    for name in ("aliases", "marks", "schedules", "words"):
        if name in table:
            table[name] = tuple(table[name])
    fit = dict(table.get("fit", {}))
    for name, kind in (("time", StackTime), ("memory", StackMemory)):
        value = table.get(name, {})
        own = {"of": value} if isinstance(value, str) else _tuples(value)
        owner, where = own.pop("of", ""), f"catalog/stacks/{file}.toml"
        _check(own, kind, where=f"{where}: [{name}]")
        table[f"{name}_of"] = owner or file
        if owner:
            other = _owner(owner, name, where=where)
            table[name] = replace(getattr(other, name), **own) if own else getattr(other, name)
            fit |= {name: other.fit[name]} if name in other.fit else {}
        else:
            table[name] = kind(**own)
    table["dispatch"] = Dispatch(**table.get("dispatch", {}))
    table["runs"] = _support(table.get("runs", {}))
    table["usual"] = {habit: Usual(**_tuples(usual)) for habit, usual in table.get("usual", {}).items()}
    return Stack(**{**table, "fit": fit})


def _check(table: Mapping[str, Any], kind: type[StackTime | StackMemory], *, where: str) -> None:
    """Refuses keys of a stack's table that mean nothing, and words of ``remade``."""
    names = [each.name for each in fields(kind)]
    for key in table:
        if key not in names:
            raise RecipeError("unknown key of a stack", where=where, **unknown(key, names))
    for word in table.get("remade", ()):
        if word not in get_args(Remade):
            raise RecipeError("no part of a model", where=f"{where} remade", **unknown(str(word), get_args(Remade)))


def _support(table: dict[str, Any]) -> Support:
    inner = {name: _tuples(table.get(name, {})) for name in ("axes", "of_models", "stages_with")}
    return Support(**{**_tuples(table), **inner})


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of a table, its lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def _owner(name: str, part: str, *, where: str) -> Stack:
    if name not in stack_names() or getattr(read_stack(name), f"{part}_of") != name:
        raise RecipeError(
            "{part} of another stack",
            where=where,
            seen=repr(name),
            expected=f"a stack with a [{part}] table of its own",
            part=part,
        )
    return read_stack(name)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
