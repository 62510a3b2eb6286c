"""Folders of ``catalog`` with one TOML file per entry: their names, tables and aliases."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

CATALOG = Path(__file__).parents[2] / "catalog"
"""The data files of the package."""


@cache
def names(folder: str) -> tuple[str, ...]:
    """Returns the names of the files in a folder of the catalogue, sorted."""
    entries = (CATALOG / folder).iterdir()
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml")))


@cache
def table(folder: str, name: str) -> dict[str, Any]:
    """Returns what the file of that name holds: read once, not to be changed."""
    return tomllib.loads((CATALOG / folder / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def listed(folder: str, key: str = "aliases") -> dict[str, tuple[str, ...]]:
    """Returns the texts that each file in a folder of the catalogue lists under ``key``.

    They alone are read where they stand in one place: all of a hundred files take longer than a plan.
    """
    alone = re.compile(rf"^{key} = \[[^\]]*\]", re.MULTILINE)

    def texts_of(name: str) -> tuple[str, ...]:
        written = alone.search((CATALOG / folder / f"{name}.toml").read_text(encoding="utf-8"))
        entry = table(folder, name) if written is None else tomllib.loads(written[0])
        return tuple(entry[key])

    return {name: texts_of(name) for name in names(folder)}


@cache
def aliases(folder: str) -> dict[str, str]:
    """Returns the name that each alias in a folder of the catalogue stands for."""
    return {alias: name for name, others in listed(folder).items() for alias in others}
