"""Folders of ``catalog`` with one TOML file per entry: their names, tables and aliases."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_CATALOG = files("trainwright") / "catalog"
_ALIASES = re.compile(r"^aliases = \[[^\]]*\]", re.MULTILINE)


@cache
def names(folder: str) -> tuple[str, ...]:
    """Returns the names of the files in a folder of the catalogue, sorted."""
    entries = (_CATALOG / folder).iterdir()
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml")))


@cache
def table(folder: str, name: str) -> dict[str, Any]:
    """Returns what the file of that name holds: read once, not to be changed."""
    return tomllib.loads((_CATALOG / folder / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def listed(folder: str) -> dict[str, tuple[str, ...]]:
    """Returns the aliases of each file in a folder of the catalogue.

    They alone are read where they stand in one place: all of a hundred files take longer than a plan.
    """

    def aliases_of(name: str) -> tuple[str, ...]:
        written = _ALIASES.search((_CATALOG / folder / f"{name}.toml").read_text(encoding="utf-8"))
        entry = table(folder, name) if written is None else tomllib.loads(written[0])
        return tuple(entry["aliases"])

    return {name: aliases_of(name) for name in names(folder)}


@cache
def aliases(folder: str) -> dict[str, str]:
    """Returns the name that each alias in a folder of the catalogue stands for."""
    return {alias: name for name, others in listed(folder).items() for alias in others}
