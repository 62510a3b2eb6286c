"""Whose code failed: the plug-in of a recipe in which something was raised, found by the traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import failure, is_mistake
from trainwright.core.registry import references_in
from trainwright.core.source_digest import code_of

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
        at_fault = _at_fault(error, dict(references_in(settings))) if is_mistake(error) else {}
        if not at_fault:
            raise
        names = " or ".join(dict.fromkeys(at_fault.values()))
        raise failure(names, error, where=next(iter(at_fault)), error_class=RecipeError) from error


def _at_fault(error: BaseException, references: Mapping[str, str]) -> dict[str, str]:
    """Those references, by key, in whose code the exception was raised.

    Where several share a module it is those whose function or class was called, or all of them if none was.
    """
    code = {key: set(code_of(reference)) for key, reference in references.items()}
    modules = {key: {each.partition(":")[0] for each in theirs} for key, theirs in code.items()}
    calls = [
        (str(frame.f_globals.get("__name__")), frame.f_code.co_qualname.partition(".")[0])
        for frame, _ in walk_tb(error.__traceback__)
    ]
    for module, _ in reversed(calls):
        keys = [key for key, theirs in modules.items() if module in theirs]
        package = module.partition(".")[0]
        if not keys and package not in SHARED_PACKAGES:
            keys = [key for key, theirs in modules.items() if package in {each.partition(".")[0] for each in theirs}]
        if keys:
            called = [key for key in keys if code[key] & {":".join(call) for call in calls}]
            return {key: references[key] for key in called or keys}
    return {}
