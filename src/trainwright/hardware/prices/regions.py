"""In which country a cloud's region lies (``catalog/regions.toml``), so that ``eu`` means one law everywhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from trainwright.hardware.catalogue.tables import CATALOG

_FILE = CATALOG / "regions.toml"


class _Table(NamedTuple):
    """``words`` and ``regions`` say a country, ``groups`` the countries of what is asked for as one."""

    words: Mapping[str, str]
    regions: Mapping[str, str]
    groups: Mapping[str, frozenset[str]]


def country_of(region: str) -> str | None:
    """Returns the ISO 3166 code (lower case) of the country that a region lies in; None where its name does not say."""
    table, name = _table(), region.lower()
    listed = [key for key in table.regions if re.match(rf"{re.escape(key)}(?![a-z0-9])", name)]
    if listed:
        return table.regions[max(listed, key=len)]
    return next((table.words[word] for word in _words(region) if word in table.words), None)


def lies_in(region: str, wanted: str) -> bool:
    """Returns whether a region lies where ``wanted`` says: in a country or a group of them, or by its name.

    ``eu`` is the European Union: London's ``eu-west-2`` and Norway are not in it (``europe`` has them). What is no
    country, and a region whose country is not known, goes by words or the beginnings of some: ``us-east-1``, ``usw2``.
    """
    asked = _words(wanted)
    countries = _countries(asked[0]) if len(asked) == 1 else None
    here = None if countries is None else country_of(region)
    if countries is not None and here is not None:
        return here in countries
    words = _words(region)
    return bool(asked) and all(any(word.startswith(each) for word in words) for each in asked)


def names_place(name: str, regions: Iterable[str]) -> bool:
    """Returns whether ``name`` is a country, a group of them, or where one of ``regions`` lies by its name."""
    asked = _words(name)
    if len(asked) == 1 and _countries(asked[0]) is not None:
        return True
    return any(lies_in(region, name) for region in regions)


def place_names() -> tuple[str, ...]:
    """Returns all words for countries and groups of them, and the regions whose country is written down."""
    table = _table()
    return (*table.groups, *table.words, *table.regions)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _countries(word: str) -> frozenset[str] | None:
    table = _table()
    if word in table.groups:
        return table.groups[word]
    return frozenset((table.words[word],)) if word in table.words else None


@cache
def _table() -> _Table:
    file = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    groups: Mapping[str, list[str]] = file["groups"]

    def members(name: str) -> Iterator[str]:
        for each in groups[name]:
            yield from members(each) if each in groups else (each,)

    regions: Mapping[str, str] = file["regions"]
    countries = {*file["words"], *regions.values(), *(each for name in groups for each in members(name))}
    words = {word: country for country, others in file["words"].items() for word in others}
    return _Table(
        words=words | {country: country for country in countries},
        regions=regions,
        groups={name: frozenset(members(name)) for name in groups},
    )
