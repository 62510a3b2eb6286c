"""Folders of ``catalog`` with one TOML file per entry: their names, tables and aliases."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.core.errors import RecipeError

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
    path = CATALOG / folder / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError("no TOML", where=str(path), seen=str(error), expected="a file of the catalogue") from None


@cache
def listed(folder: str, key: str = "aliases") -> dict[str, tuple[str, ...]]:
    """Returns the texts that each file in a folder of the catalogue lists under ``key``.

    They alone are read where they stand in one place: all of a hundred files take longer than a plan.
    """
    alone = re.compile(rf"^{key} = \[[^\]]*\]", re.MULTILINE)

    def texts_of(name: str) -> tuple[str, ...]:
        written = alone.search((CATALOG / folder / f"{name}.toml").read_text(encoding="utf-8"))
        entry = table(folder, name) if written is None else tomllib.loads(written[0])
        if key not in entry:
            where = str(CATALOG / folder / f"{name}.toml")
            raise RecipeError("a file without {key}", where=where, expected=f"{key} = [...]", key=key)
        return tuple(entry[key])

    return {name: texts_of(name) for name in names(folder)}


@cache
def aliases(folder: str) -> dict[str, str]:
    """Returns the name that each alias in a folder of the catalogue stands for."""
    return {alias: name for name, others in listed(folder).items() for alias in others}


def refuse_twins(folder: str) -> None:
    """Refuses a folder of the catalogue where one word means two of its files.

    Raises:
        RecipeError: two files have an alias, or it is another's name.
    """
    found = {name: name for name in names(folder)}
    for name, others in listed(folder).items():
        for alias in others:
            if found.setdefault(alias, name) != name:
                where, other = str(CATALOG / folder / f"{name}.toml"), found[alias]
                raise RecipeError("it means {other} too", where=where, seen=alias, fix="leave it out", other=other)
