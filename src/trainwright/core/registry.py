"""Names to functions: a plain dict entry, or ``package.module:function`` written in a recipe."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from trainwright.core.errors import RecipeError, in_one_line
from trainwright.core.spelling import did_you_mean, with_article

REFERENCE = "package.module:name"
"""How a plug-in is written in a recipe."""


def is_reference(name: str) -> bool:
    """Returns whether a name has the form ``package.module:name``."""
    module_name, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module_name.split("."), attribute))


def references_in(value: Any, *key: str) -> Iterator[tuple[str, str]]:
    """Yields each ``package.module:name`` below a value, with its dotted key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from references_in(item, *key, str(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from references_in(item, *key, str(number))
    elif isinstance(value, str) and is_reference(value):
        yield ".".join(key), value


def look_up(name: str, known: Mapping[str, Any], *, kind: str) -> Any:
    """Returns the object that ``name`` stands for.

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
        "unknown {kind}",
        seen=repr(name),
        expected=f"one of {', '.join(sorted(known))}, or package.module:name",
        fix=did_you_mean(name, known),
        kind=kind,
    )


def installed(package: str) -> bool:
    """Returns whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # it is there without a spec, as what stands in for a package may be
        return False


def load(reference: str, *, kind: str) -> Callable[..., Any]:
    """Import ``package.module:attribute``.

    Raises:
        RecipeError: not of this form, or the module or the attribute does not exist.
    """
    if not is_reference(reference):
        raise RecipeError(
            "not a reference to {a_kind}", seen=repr(reference), expected=REFERENCE, a_kind=with_article(kind)
        )
    module_name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise RecipeError(
            "cannot import {kind}", seen=repr(reference), fix=f"no module {error.name!r}: is it installed?", kind=kind
        ) from error
    except (Exception, SystemExit) as error:
        if reference.startswith("trainwright."):
            raise
        raise RecipeError(
            "importing this {kind} fails",
            seen=f"{reference!r}, {in_one_line(error)}",
            fix="mend it; --debug shows the traceback",
            kind=kind,
        ) from error
    try:
        value: Callable[..., Any] = getattr(module, attribute)
    except AttributeError as error:
        raise RecipeError(
            "cannot find {kind}", seen=repr(reference), fix=f"module {module_name!r} has no {attribute!r}", kind=kind
        ) from error
    return value
