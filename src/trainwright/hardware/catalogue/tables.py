"""Folders of ``catalog`` with one TOML file per entry: their names, tables and aliases."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_CATALOG = files("trainwright") / "catalog"


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
def aliases(folder: str) -> dict[str, str]:
    """Returns the name that each alias in a folder of the catalogue stands for."""
    return {alias: name for name in names(folder) for alias in table(folder, name)["aliases"]}
