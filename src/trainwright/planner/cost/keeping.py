"""What lies at a cloud beside the rented devices, and what leaves it: storage and egress, each by its own price.

Kept for the time of the run are its data, as text and as tokens, and two checkpoints; weights are taken out once, at
the end. What comes in is free at every cloud of which that is known.
"""

from __future__ import annotations

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB, format_bytes
from trainwright.hardware.prices.clouds import Storage, cloud
from trainwright.planner.cost.run_cost import IMAGE_BYTES, KEPT_CHECKPOINTS, checkpoint_bytes, token_bytes
from trainwright.planner.counts.adapters import count_trained
from trainwright.planner.counts.layouts import Numbers, Values
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.device import Price
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.run import RunSpec

TEXT_BYTES = 4.0
"""Bytes of text for a token: about four letters of English (OpenAI, "What are tokens", recall)."""
MONTH_S = 730 * 3600.0
"""Clouds count 730 hours (cloud.google.com/storage/pricing, read 2026-09-20: 0.02 dollars are 2.7397e-5 an hour)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Bytes that lie at the cloud while a run goes on, and those that leave it when it ends."""

    data_bytes: float
    checkpoints_bytes: float
    out_bytes: float
    source: str
    base_bytes: float = 0.0
    """Of the model that adapters are trained beside."""

    @property
    def kept_bytes(self) -> float:
        """Returns the bytes of all that lies there."""
        return self.data_bytes + self.checkpoints_bytes + self.base_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What they cost at ``provider``, for ``months``; None where the cloud's price is not known.

    ``total_usd`` is the rental with what is known of both; ``without`` names what it leaves out.
    """

    kept: Kept
    provider: str
    months: float
    storage_usd: float | None
    egress_usd: float | None
    total_usd: float | None = None

    @property
    def without(self) -> tuple[str, ...]:
        """Returns the names of what is not known."""
        return tuple(name for name, usd in self.costs if usd is None)

    @property
    def costs(self) -> tuple[tuple[str, float | None], ...]:
        """Returns both costs by name."""
        return (("storage", self.storage_usd), ("egress", self.egress_usd))


def kept_of(run: RunSpec, *, data_bytes: float | None = None, passes: float = 1.0) -> Kept:
    """Returns what a run keeps, and takes out at its end: its weights as it computes with them, or adapters alone.

    Args:
        run: whose tokens and checkpoints are meant.
        data_bytes: of the data set, as it lies there; None: text and ids of the run's tokens.
        passes: how often the run sees its data.
    """
    model, workload = run.model, run.workload
    source = "given"
    if data_bytes is None:
        tokens = workload.total_tokens / passes
        each = token_bytes(model, workload) if model.sees_images else token_bytes(model, workload) + TEXT_BYTES
        data_bytes = tokens * each
        times = "" if passes == 1 else f", each seen {passes:g} times"
        source = f"ids of {token_bytes(model, workload):.0f} bytes and {TEXT_BYTES:.0f} of text a token{times}"
        if model.sees_images:
            source = f"{IMAGE_BYTES / 1e3:.0f} kB an image{times}"
    weights = workload.element_bytes * total_parameters(model)
    out, base = weights, 0.0
    if workload.adapter is not None:
        out, base = run.stack.memory.adapter_bytes * count_trained(model, workload), weights
    return Kept(
        base_bytes=base,
        data_bytes=data_bytes,
        checkpoints_bytes=KEPT_CHECKPOINTS * checkpoint_bytes(run),
        out_bytes=out,
        source=source,
    )


def storage_usd(kept: Kept, seconds: Values, storage: Storage) -> Numbers | None:
    """Returns the dollars for what is kept so long; None where the cloud's price is not known."""
    if storage.usd_per_gib_month is None:
        return None
    return np.asarray(kept.kept_bytes / GIB * storage.usd_per_gib_month * np.asarray(seconds) / MONTH_S)


def egress_usd(kept: Kept, storage: Storage) -> float | None:
    """Returns the dollars for what leaves the cloud, beyond what is free in a month; None where that is not known."""
    if storage.usd_per_gib_out is None:
        return None
    return max(0.0, kept.out_bytes / GIB - storage.free_out_gib) * storage.usd_per_gib_out


def storage_of(price: Price | None) -> Storage:
    """Returns the prices of the cloud that rents at a price; unknown where it is no cloud's."""
    return cloud(price.provider).storage if price is not None and price.provider else Storage()


def keeping(kept: Kept, price: Price, seconds: float, rental_usd: float | None) -> Keeping:
    """Returns what storage and egress cost where such a price is paid."""
    facts = storage_of(price)
    stored = storage_usd(kept, seconds, facts)
    costs = (None if stored is None else float(stored), egress_usd(kept, facts))
    return Keeping(
        kept=kept,
        provider=price.provider,
        months=seconds / MONTH_S,
        storage_usd=costs[0],
        egress_usd=costs[1],
        total_usd=None if rental_usd is None else rental_usd + sum(each for each in costs if each is not None),
    )


def assumed(kept: Kept, price: Price | None = None) -> list[Assumption]:
    """Returns what both rest on: the bytes, and of one cloud its prices."""
    base = f", the model's {format_bytes(kept.base_bytes)}" if kept.base_bytes else ""
    held = f"{format_bytes(kept.data_bytes)} of data ({kept.source}){base}, {KEPT_CHECKPOINTS} checkpoints"
    amount = f"{format_bytes(kept.kept_bytes)} kept, {format_bytes(kept.out_bytes)} out"
    origin: Origin = "given" if kept.source == "given" else "default"
    notes = [
        Assumption(
            "storage and egress", amount, "", origin, f"{held}, while it runs; weights taken out once", key="kept"
        )
    ]
    if price is not None:
        facts = storage_of(price)
        name = f"their prices at {price.provider}" if price.provider else "their prices"
        source = facts.source if price.provider else "a given price names no cloud"
        notes.append(Assumption(name, facts.text, "", "catalog", source, key="kept_prices"))
    return notes
