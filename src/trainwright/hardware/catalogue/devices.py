"""Reads ``catalog/devices``: one TOML file per accelerator or processor, every number with its source.

Rates are *dense* peaks from datasheets, of processors cores x base clock x operations a cycle (in ``sources``).
``memory_bytes`` is the printed size in decimal gigabytes, although boards hold as many GiB: what a process can have of
them is ``planner.forecast.memory.table.usable_bytes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue import tables
from trainwright.hardware.catalogue.device_files import checked
from trainwright.hardware.catalogue.links import link
from trainwright.hardware.catalogue.printed_names import same_device, tpu_slice
from trainwright.spec.device import DeviceSpec

_DEVICES = "devices"
_PRINTED = re.compile(r"\((?:r|tm|c)\)|\b\d+-core processor\b|\bcpu\s*@.*$")
"""What processors print beside their names: trademarks, cores, clocks."""


def device_names() -> tuple[str, ...]:
    """Returns names of all devices in the catalogue, sorted."""
    return tables.names(_DEVICES)


def find_device(name: str) -> DeviceSpec | None:
    """Returns the device of that name or alias (as in ``nvidia-smi`` or a cloud's list), or None.

    A size behind the name is understood where it is the device's own: ``RTX-4090-24GB``, ``H200 (141 GB)``. Names as
    vendors print them and instance types are found by ``printed_names``; one that several devices have is None.
    """
    slug = normalised(name)
    spec = _named(slug)
    sized = re.fullmatch(r"(.+?)-(\d+)-?gb", slug)
    if spec is None and sized is not None:
        bare = _named(sized[1])
        if bare is not None and round(bare.memory_bytes / 1e9) == int(sized[2]):
            return bare
    if spec is None and len(meant := same_device(slug, _names())) == 1:
        return _read(meant[0])
    return spec


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    """Returns for each device its name, its aliases, and its name with the size of its memory."""
    aliases = _aliases()
    named = {name: (name, *(alias for alias, of in aliases.items() if of == name)) for name in device_names()}
    return {name: (*all_, f"{name}-{round(_read(name).memory_bytes / 1e9)}gb") for name, all_ in named.items()}


@cache
def _aliases() -> Mapping[str, str]:
    """Returns the device of each alias; raises RecipeError where one is two devices'."""
    tables.refuse_twins(_DEVICES)
    return tables.aliases(_DEVICES)


def _named(slug: str) -> DeviceSpec | None:
    canonical = slug if slug in device_names() else _aliases().get(slug)
    return None if canonical is None else _read(canonical)


def device(name: str, *, where: str | None = None) -> DeviceSpec:
    """Returns the device of that name or alias; ``where`` it was asked for stands in the error.

    Raises:
        RecipeError: the catalogue does not know it, or several have it; names them, or the nearest ones.
    """
    spec = find_device(name)
    if spec is None:
        several = same_device(normalised(name), _names())
        if several:
            fix, expected = f"say which: {', '.join(several)}", "a name that one device has"
            raise RecipeError("ambiguous device", where=where, seen=repr(name), expected=expected, fix=fix)
        near = get_close_matches(normalised(name), [*device_names(), *_aliases()], n=3, cutoff=0.5)
        fix = f"did you mean {' or '.join(near)}?" if near else "add a file to catalog/devices"
        fix = tpu_slice(normalised(name)) or fix
        fix += "".join(f" {each} is another one: {note}" for each, note in _notes_on(normalised(name), near))
        raise RecipeError("unknown device", where=where, seen=repr(name), expected="a name from the catalogue", fix=fix)
    return spec


def _notes_on(slug: str, near: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields near devices whose note tells them from the one that was asked for, with its words."""
    for known in filter(None, map(_named, near)):
        if slug in normalised(known.note):
            yield known.name, known.note


def normalised(name: str) -> str:
    """``a100-sxm4-80gb`` of ``NVIDIA A100 SXM4 80GB``, ``rtx-a6000`` of ``RTXA6000``; without what a CPUID adds."""
    slug = re.sub(r"[^a-z0-9]+", "-", _PRINTED.sub(" ", name.lower())).strip("-")
    slug = re.sub(r"\b([rg]tx)(?=[a-z0-9])", r"\1-", slug)
    for vendor in ("nvidia-", "amd-"):
        slug = slug.removeprefix(vendor)
    return slug


def _read(slug: str) -> DeviceSpec:
    where = str(tables.CATALOG / _DEVICES / f"{slug}.toml")
    table = checked(tables.table(_DEVICES, slug), slug, where=where)
    return DeviceSpec(
        name=table["name"],
        kind=table["kind"],
        vendor=table["vendor"],
        memory_bytes=table["memory_bytes"],
        bytes_per_s=table["bytes_per_s"],
        flops_per_s=table["flops_per_s"],
        tdp_w=table.get("tdp_w"),
        year=table["year"],
        link=link(table["link"]) if "link" in table else None,
        compute_capability=table.get("compute_capability"),
        software=tuple(table["software"]),
        source=table["source"],
        note=table.get("note", ""),
        pcie_generation=table.get("pcie_generation"),
        visible_bytes=table.get("visible_bytes"),
        peer_to_peer=table.get("peer_to_peer", True),
        unified_memory=table.get("unified_memory", False),
        cooling=tuple(table.get("cooling", ())),
        sm_count=table.get("sm_count"),
        clock_hz=table.get("clock_hz"),
        l2_bytes=table.get("l2_bytes"),
        matmul_flops_per_s=table.get("matmul_flops_per_s"),
        recorded=table["recorded"],
        sources=table.get("sources", {}),
    )
