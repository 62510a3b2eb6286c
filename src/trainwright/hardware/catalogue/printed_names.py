"""Finds devices by names as vendors and people print them: words in any order, with words that tell nothing."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.tables import CATALOG

_INSTANCES = CATALOG / "instances.toml"
_FILLER = re.compile(
    r"nvidia|amd|instinct|intel|apple|google|huawei|aws|tesla|geforce|gpus?|tensor|core|graphics|accelerator|cloud"
    r"|data|center|oam|ubb|dgx|hgx|hbm\d?e?|\d+th|gen\d?|x16|nvlink|\d+cc|nvl\d+"
)
"""Words that no two devices of the catalogue differ by: vendors, boards, machines, memory chips, bus generations."""
_FORMS: Mapping[str, str] = {"sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "pci": "pcie"}
_ONE_FORM = frozenset(("sxm", "pcie", "nvl"))
_MACHINES: Mapping[str, str] = {
    "dgx-1v": "v100-sxm",
    "dgx-1": "v100-sxm",
    "dgx1": "v100-sxm",
    "dgx-2": "v100-sxm-32gb",
    "dgx2": "v100-sxm-32gb",
}
"""NVIDIA's machines that are named by number (DGX-1 and DGX-2 system architecture, V100)."""
_OF_A_TYPE = re.compile(r"\dx|x\d|vcpu|-\d+gpu")
"""What names of instance types say beside a device; others in price lists are the device's."""
_PREFIXES = ("", "rtx", "gtx", "ascend")
"""What people leave out: ``4090``, ``1080 Ti``, ``910B``."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A name taken apart: its model's words run together, its form, and its memory in GB; None where not said."""

    model: str
    form: str | None
    memory_gb: int | None


_SLICE = re.compile(r"(?:tpu-)?(?:v(2|3|4|5p)|v(5e|6e)|v5-?lite(?:pod)?)-(\d+)")
"""A slice of a pod as Google names it: v2 to v4 and v5p by cores, two of which are a chip, v5e and v6e by chips."""


def tpu_slice(slug: str) -> str | None:
    """Returns how a slice of a TPU pod is written as a cluster: ``v3-8 is written 4xtpu-v3 (8 cores are 4 chips)``."""
    found = _SLICE.fullmatch(slug)
    if found is None:
        return None
    by_cores, count = found[1], int(found[3])
    if by_cores is None:
        return f"{slug} is written {count}xtpu-v{found[2] or '5e'}"
    return f"{slug} is written {max(1, count // 2)}xtpu-v{by_cores} ({count} cores are {max(1, count // 2)} chips)"


def same_device(name: str, known: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Returns the devices that a printed name can mean: one, or several that it does not tell apart.

    ``known`` has for each device its normalised names. Memory and form narrow the choice where they are said.
    """
    name = re.sub(r"^\d+-?x-?(?=[a-z])", "", name)  # 8xA100 is eight of them
    if rented := instance(name):
        return (rented,)
    for machine, meant in _MACHINES.items():
        if name == machine or name.startswith(f"{machine}-"):
            name = meant + name.removeprefix(machine)
            break
    if exact := [device for device, names in known.items() if _plain(name) in names]:
        return tuple(exact)
    asked = _parts(name)
    for prefix in _PREFIXES:
        found = tuple(sorted(_matching(_Parts(prefix + asked.model, asked.form, asked.memory_gb), known)))
        if found:
            return found
    return ()


def _plain(name: str) -> str:
    """Returns a normalised name without filler, its memory in ``gb``: ``a100-40gb`` of ``nvidia-a100-40g``."""
    words = re.sub(r"\b(\d+)-?(g|gb|gib)\b", r"\1gb", name).split("-")
    return "-".join(word for word in words if not _FILLER.fullmatch(word))


def _matching(asked: _Parts, known: Mapping[str, Iterable[str]]) -> Iterable[str]:
    for device, names in known.items():
        parts = [_parts(each) for each in names]
        like = [each for each in parts if each.model == asked.model]
        forms, sizes = ({getattr(each, key) for each in parts} - {None} for key in ("form", "memory_gb"))
        right_form = asked.form is None or asked.form in forms or not forms
        if like and right_form and (asked.memory_gb is None or asked.memory_gb in sizes or not sizes):
            yield device


def _parts(name: str) -> _Parts:
    """Returns a normalised name taken apart: ``h100-80gb-pcie-gen5`` is h100, pcie, 80."""
    words = re.sub(r"\b(\d+)-(g|gb|gib)\b", r"\1\2", name).split("-")
    model, form, memory = [], None, None
    for word in words:
        plain = _FORMS.get(word, word)
        if size := re.fullmatch(r"(\d+)(g|gb|gib)", plain):
            memory = int(size[1])
        elif plain in _ONE_FORM:
            form = plain
        elif not _FILLER.fullmatch(plain) and plain not in model:
            model.append(plain)
    if form is None and not {"dgx", "hgx"}.isdisjoint(words):
        form = "sxm"
    if "ada" in model and any(re.fullmatch(r"a\d000", word) for word in model):
        # The A6000 is of the generation before: "Ada A6000" is its successor, the RTX 6000 Ada.
        model = ["rtx", *(re.sub(r"^a(?=\d000$)", "", word) for word in model if word not in ("ada", "rtx")), "ada"]
    return _Parts("".join(model), form, memory)


def instance(name: str) -> str | None:
    """Returns the device of an instance type, ``p4d-24xlarge``, ``ml-p4d-24xlarge`` (SageMaker's), else None.

    Azure's may be named without what all begin with: ``nd96isr-h100-v5``.
    """
    plain, devices = _type(name), _instances()["devices"]
    is_sized = re.search(r"xlarge|metal|standard|gpu", plain)
    fits = [key for key in devices if is_sized and (plain == key or plain.startswith(f"{key}-"))]
    if fits:
        return str(devices[max(fits, key=len)])
    return _listed().get(name) if _OF_A_TYPE.search(name) else None


def instance_cloud(name: str) -> str | None:
    """Returns the file's name of the cloud that rents an instance type, of which several may be counted; else None."""
    plain = _type(re.sub(r"^(\d+x-?)+", "", name))
    return next((cloud for cloud, types in _instances()["clouds"].items() if re.fullmatch(str(types), plain)), None)


def instance_devices(name: str) -> int | None:
    """Returns how many devices an instance type has; None where it is not known."""
    plain = _type(name)
    printed = re.fullmatch(r"a\d-[a-z]+gpu-(\d+)g|[bv]m-gpu.*-(\d+)", plain)
    known = int(printed[1] or printed[2]) if printed else _instances()["sizes"].get(plain)
    return None if known is None else int(known)


def machine_devices(name: str, full: int) -> int | None:
    """Returns how many devices one machine or rack of NVIDIA's has that is named so, else None.

    ``dgx-h100`` has the ``full`` devices of a node, ``dgx-2`` 16, ``gb200-nvl72`` 72.
    """
    if rack := re.search(r"\bnvl(\d+)\b", name):
        return int(rack[1])
    if not name.startswith("dgx"):
        return None
    return 16 if re.match(r"dgx-?2\b", name) else full


def is_board(name: str) -> bool:
    """Returns whether a name is that of a board of several devices, of four or of eight: ``HGX H100``."""
    return "hgx" in re.split(r"[\W_]+", name.lower())


def _type(name: str) -> str:
    plain = name.removeprefix("ml-")
    return f"standard-{plain}" if f"standard-{plain}" in _instances()["devices"] else plain


@cache
def _listed() -> Mapping[str, str]:
    """Returns the devices of the instance types in the packaged price list, by their normalised names."""
    with (CATALOG / "prices" / "published.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["instance"], row["device"]) for row in csv.DictReader(file)]
    slugs = ((re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), device) for name, device in rows)
    return {slug: device for slug, device in slugs if _OF_A_TYPE.search(slug)}


@cache
def _instances() -> Mapping[str, Mapping[str, str | int]]:
    table: Mapping[str, Mapping[str, str | int]] = tomllib.loads(_INSTANCES.read_text(encoding="utf-8"))
    return table
