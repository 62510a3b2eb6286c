"""Reads ``catalog/clouds``: who rents devices, in whose list their prices stand, and what their names mean."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field, replace
from difflib import get_close_matches
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.devices import find_device, normalised
from trainwright.hardware.catalogue.tables import CATALOG
from trainwright.spec.device import Price

_CLOUDS = CATALOG / "clouds"
FEED_NAMES: Mapping[str, str] = {"A100": "a100-sxm-40gb"}
"""What SkyPilot's catalogue calls a device that others share the name of: its A100 has 40 GB, beside A100-80GB
(skypilot-org/skypilot-catalog, v9, recall)."""
TERM_S = 365 * 24 * 3600.0
"""What a reserved price is paid for at least: terms are of one and three years (aws.amazon.com/ec2/pricing, recall)."""


AT_ONCE, SPOT_AT_ONCE = 512, 256
"""Devices that are plausibly to be had at once, where a cloud's file does not say it. On demand: the 64 machines of
eight of one Capacity Block of AWS (docs.aws.amazon.com, read 2026-02-08); on spot half of that, a guess."""
CONTRACT_S = 30 * 24 * 3600.0
"""What more devices are paid for at least, at the price on demand: nobody builds such a cluster for less than a month,
a guess."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Billing:
    """Time is paid in steps of ``granularity_s``, and no run pays less than ``minimum_s``.

    More devices than ``at_once`` are had by a contract of ``CONTRACT_S``, where ``contracts`` are made, else not. The
    defaults are of clouds of which nothing is known: none of the known ones counts in longer steps than a minute.
    """

    granularity_s: float = 60.0
    minimum_s: float = 60.0
    at_once: float = AT_ONCE
    contracts: bool = True
    source: str = "not known: a minute, the longest of the clouds that say it"

    @property
    def most_devices(self) -> float:
        """Returns the devices that can be had at all."""
        return np.inf if self.contracts else self.at_once

    def billed_s(self, seconds: NDArray[np.float64], devices: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Returns the seconds that are paid for; those of devices that cannot be had as if there were as many."""
        # A run of whole steps is no step longer because its seconds are rounded in binary.
        steps = np.ceil(seconds / self.granularity_s - 1e-9)
        by_contract = (np.asarray(devices) > self.at_once) & self.contracts
        least = np.where(by_contract, max(CONTRACT_S, self.minimum_s), self.minimum_s)
        return np.maximum(steps * self.granularity_s, least)


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """Dollars for a GiB of object storage a month, and for one sent to the internet beyond ``free_out_gib`` a month.

    None where nobody knows: then the answer says *unknown*.
    """

    usd_per_gib_month: float | None = None
    usd_per_gib_out: float | None = None
    free_out_gib: float = 0.0
    source: str = "not known"

    @property
    def text(self) -> str:
        """Returns both prices in words."""
        kept, out = self.usd_per_gib_month, self.usd_per_gib_out
        free = f" beyond {self.free_out_gib:,.0f} GiB a month" if self.free_out_gib else ""
        stored = "storage unknown" if kept is None else f"${kept:g} a GiB and month"
        return f"{stored}, " + ("egress unknown" if out is None else f"${out:g} a GiB out{free}" if out else "none out")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """An instance type that carries ``devices`` of ``device``, at a price that is not known."""

    name: str
    device: str
    devices: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """What joins the machines of a cloud that carry such devices: the rate of a whole machine, one direction."""

    devices_of: tuple[str, ...]
    gbit_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloud:
    """A provider.

    ``feed`` is its folder in SkyPilot's catalogue, or None; ``accelerators`` and ``instance_prefixes`` say what its
    names mean where the catalogue's own aliases would err; ``hosts`` the machine to which ``NAME:COUNT`` is attached,
    where its list prices the two apart; ``instances`` what it rents at unknown prices; ``billing`` how time is counted;
    ``storage`` what lies there costs, and what leaves it; ``networks`` what it states of those between machines.
    """

    slug: str
    title: str
    source: str
    recorded: str
    aliases: tuple[str, ...] = ()
    feed: str | None = None
    note: str = ""
    accelerators: Mapping[str, str] = field(default_factory=dict)
    instance_prefixes: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    billing: Billing = Billing()
    storage: Storage = Storage()
    networks: tuple[Network, ...] = ()

    def device(self, accelerator: str, instance: str) -> str | None:
        """Returns the catalogue's name of what this cloud calls ``accelerator`` in ``instance``, or None."""
        prefixes = [prefix for prefix in self.instance_prefixes if instance.startswith(prefix)]
        if prefixes:
            return self.instance_prefixes[max(prefixes, key=len)]
        if accelerator in self.accelerators:
            return self.accelerators[accelerator]
        spec = find_device(FEED_NAMES.get(accelerator, accelerator))
        return None if spec is None else spec.name


@cache
def clouds() -> tuple[Cloud, ...]:
    """Returns all clouds, by name."""
    listed = []
    for entry in sorted(_CLOUDS.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".toml"):
            table = tomllib.loads(entry.read_text(encoding="utf-8"))
            table["aliases"] = tuple(table.get("aliases", ()))
            table["instances"] = tuple(Instance(**each) for each in table.get("instances", ()))
            networks = [each | {"devices_of": tuple(each["devices_of"])} for each in table.get("networks", ())]
            table["networks"] = tuple(Network(**each) for each in networks)
            table["billing"] = Billing(**table.get("billing", {}))
            table["storage"] = Storage(**table.get("storage", {}))
            listed.append(Cloud(slug=entry.name.removesuffix(".toml"), **table))
    return tuple(listed)


@cache
def _by_name() -> Mapping[str, Cloud]:
    return {key: each for each in clouds() for key in (each.slug, normalised(each.title), *each.aliases)}


def cloud(name: str, *, where: str | None = None) -> Cloud:
    """Returns the cloud of that name or alias.

    Raises:
        RecipeError: none has it; names near ones.
    """
    known, slug = _by_name(), normalised(name)
    if slug in known:
        return known[slug]
    near = get_close_matches(slug, known, n=2, cutoff=0.5)
    slugs = ", ".join(each.slug for each in clouds())
    fix = f"did you mean {' or '.join(near)}?" if near else None
    raise RecipeError("unknown cloud", where=where, seen=repr(name), expected=f"one of {slugs}", fix=fix)


def billing_of(price: Price | None) -> Billing | None:
    """Returns how a price is paid: as its cloud counts, a reserved one for its whole term; None: it is no cloud's."""
    if price is None or not price.provider:
        return None
    usual = cloud(price.provider).billing
    if price.kind == "spot":
        return replace(usual, at_once=min(SPOT_AT_ONCE, usual.at_once), contracts=False)
    return replace(usual, minimum_s=TERM_S, at_once=np.inf) if price.kind == "reserved" else usual
