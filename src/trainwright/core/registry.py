"""Names to functions: a plain dict entry, or ``package.module:function`` written in a recipe."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from trainwright.core.errors import RecipeError


def resolve(name: str, known: Mapping[str, Any], *, kind: str) -> Any:
    """The object that ``name`` stands for.

    Args:
        name: a key of ``known`` or ``package.module:attribute``.
        known: the built-in entries; a string value is itself ``package.module:attribute``, loaded on use.
        kind: what is looked up ("filter", "metric", ...), for the error line.

    Raises:
        RecipeError: the name is unknown, or its module or attribute does not exist.
    """
    if name in known:
        entry = known[name]
        return load(entry, kind=kind) if isinstance(entry, str) else entry
    if ":" in name:
        return load(name, kind=kind)
    raise RecipeError(
        f"unknown {kind}",
        seen=repr(name),
        expected=f"one of {', '.join(sorted(known))}, or package.module:name",
        fix=did_you_mean(name, known),
    )


def load(reference: str, *, kind: str) -> Callable[..., Any]:
    """Import ``package.module:attribute``.

    Raises:
        RecipeError: not of this form, or the module or the attribute does not exist.
    """
    module_name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise RecipeError(f"not a reference to a {kind}", seen=repr(reference), expected="package.module:name")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"cannot import {kind}", seen=repr(reference), fix=f"no module {error.name!r}: is it installed?"
        ) from error
    try:
        found: Callable[..., Any] = getattr(module, attribute)
    except AttributeError as error:
        raise RecipeError(
            f"cannot find {kind}", seen=repr(reference), fix=f"module {module_name!r} has no {attribute!r}"
        ) from error
    return found


def did_you_mean(name: str, known: Mapping[str, Any] | list[str]) -> str | None:
    """``did you mean 'x'?`` for the nearest known name, or None where none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None
