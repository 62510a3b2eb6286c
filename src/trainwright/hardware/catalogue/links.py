"""Reads ``catalog/links``: what joins devices, and how fast; a rate such as ``400Gb/s`` is a link too."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from functools import cache
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.tables import CATALOG
from trainwright.spec.device import LinkSpec

_LINKS = CATALOG / "links"
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<scale>[MGT])(?P<unit>b/s|bps|bit/s|B/s)")
_SCALE = {"M": 1e6, "G": 1e9, "T": 1e12}


def link_names() -> tuple[str, ...]:
    """Returns names of all links in the catalogue, sorted."""
    return tuple(sorted(_tables()))


def link(name: str, *, where: str | None = None) -> LinkSpec:
    """Returns the link of that name; for a network it is one port.

    Raises:
        RecipeError: the catalogue does not know it; names the nearest ones.
    """
    slug = _slug(name)
    table = _table(slug, where)
    return LinkSpec(
        name=slug,
        bytes_per_s=float(table["bytes_per_s"]),
        latency_s=table["latency_s"],
        source=f"{table['source']}; latency: {table['latency_source']}; {table['recorded']}",
    )


def link_reach(name: str) -> int | None:
    """Returns the most devices that such a link joins (2 for a bridge, 72 for NVL72), or None: all of a node."""
    reach: int | None = _table(_slug(name), None).get("devices")
    return reach


def is_rate(text: str) -> bool:
    """Returns whether ``text`` begins as a rate does: with a digit."""
    return text.strip()[:1].isdigit()


def parse_rate(text: str, *, where: str | None = None) -> float:
    """Returns bytes per second of ``400Gb/s``, ``400 Gbps``, ``1.6 Tb/s`` or ``50 GB/s``; b is a bit and B a byte.

    Raises:
        RecipeError: no such rate, or zero.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match["number"]) == 0:
        raise RecipeError(
            "cannot read a rate", where=where, seen=repr(text), expected="for example 400Gb/s (bits) or 50GB/s (bytes)"
        )
    per_s = float(match["number"]) * _SCALE[match["scale"]]
    return per_s if match["unit"] == "B/s" else per_s / 8


def _slug(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _table(slug: str, where: str | None) -> dict[str, Any]:
    table = _tables().get(slug)
    if table is None:
        near = get_close_matches(slug, _tables(), n=3, cutoff=0.5)
        fix = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(link_names())}"
        raise RecipeError("unknown link", where=where, seen=repr(slug), expected="a link or a rate", fix=fix)
    return table


@cache
def _tables() -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for entry in _LINKS.iterdir():
        if entry.name.endswith(".toml"):
            family = tomllib.loads(entry.read_text(encoding="utf-8"))
            shared = {key: value for key, value in family.items() if not isinstance(value, dict)}
            tables.update({key: shared | value for key, value in family.items() if isinstance(value, dict)})
    return tables
