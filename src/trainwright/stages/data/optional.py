"""Packages that only some corpora need, imported when one of them does."""

from __future__ import annotations

import importlib
from types import ModuleType

from trainwright.core.errors import MissingPackage


def need(module: str, *, needed_for: str) -> ModuleType:
    """Import an optional module.

    Raises:
        MissingPackage: its package is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise MissingPackage(package, needed_for=needed_for, extra="data") from error
