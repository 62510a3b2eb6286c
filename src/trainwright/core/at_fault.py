"""Whose code failed: the plug-in of a recipe in which something was raised, found by the traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import failure, is_mistake
from trainwright.core.registry import is_reference

SHARED_PACKAGES = frozenset(("trainwright", "torch"))
"""Packages whose code runs without being a plug-in's: there a recipe's reference stands for its module alone."""


@contextmanager
def blaming_at_fault(settings: Mapping[str, Any]) -> Iterator[None]:
    """Turns what any plug-in raises into one line under its key; nothing is done until something is raised.

    The traceback tells whose code it was: the innermost frame that lies in the package of a plug-in.

    Args:
        settings: sections and values that may name plug-ins, by key.

    Raises:
        RecipeError: a plug-in raised something that is not one of our errors.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        at_fault = _at_fault(error, dict(_references(settings))) if is_mistake(error) else {}
        if not at_fault:
            raise
        names = " or ".join(dict.fromkeys(at_fault.values()))
        raise failure(names, error, where=", ".join(at_fault), error_class=RecipeError) from error


def _references(value: Any, *key: str) -> Iterator[tuple[str, str]]:
    """Each ``package.module:name`` below a value, with its dotted key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _references(item, *key, str(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _references(item, *key, str(number))
    elif isinstance(value, str) and is_reference(value):
        yield ".".join(key), value


def _at_fault(error: BaseException, references: Mapping[str, str]) -> dict[str, str]:
    """Those references, by key, in whose code the exception was raised; several where they share a module."""
    modules = {key: _modules(reference) for key, reference in references.items()}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__"))
        keys = [key for key, theirs in modules.items() if module in theirs]
        package = module.partition(".")[0]
        if not keys and package not in SHARED_PACKAGES:
            keys = [key for key, theirs in modules.items() if package in {each.partition(".")[0] for each in theirs}]
        if keys:
            return {key: references[key] for key in keys}
    return {}


def _modules(reference: str) -> set[str]:
    """The modules that a plug-in names: its own, and those of the references in its fields (``TaskKind.make``)."""
    module, _, name = reference.partition(":")
    value = getattr(sys.modules.get(module), name, None)
    fields = vars(type(value)).get("__dataclass_fields__", ())
    inner = [text for field in fields if isinstance(text := getattr(value, field), str) and is_reference(text)]
    return {module, *(text.partition(":")[0] for text in inner)}
