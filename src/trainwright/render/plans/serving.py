"""An estimate of serving a model: verdict, memory, latency, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.render.numbers import amount, format_rate
from trainwright.render.page import Page
from trainwright.render.plans.assumptions import assumption_row

if TYPE_CHECKING:
    from trainwright.planner.cost.serving import InferenceEstimate
    from trainwright.planner.cost.serving_memory import Serving


def verdict(estimate: InferenceEstimate, ways: Sequence[str] = ()) -> str:
    """``fits: 34 GiB of 78.8 GiB; 110 tokens/s for one, 1,760 in all``."""
    memory = f"{format_bytes(estimate.memory.total_bytes)} of {format_bytes(estimate.memory_available_bytes)}"
    if not estimate.fits:
        largest = estimate.largest_batch
        way = f"; a batch of {largest:,} would" if largest else f"; smallest change: {ways[0]}" if ways else ""
        return f"does not fit: needs {memory}{way}"
    one, every = format_rate(estimate.tokens_per_s_per_user), format_rate(estimate.tokens_per_s)
    cost = estimate.usd_per_million_tokens
    price = "price unknown" if cost is None else f"{format_usd(cost.mid)} for a million"
    return f"fits: {memory}; {one} tokens/s for each sequence, {every} in all, {price}"


def show(
    name: str,
    estimate: InferenceEstimate,
    serving: Serving,
    page: Page,
    *,
    ways: Sequence[str] = (),
    unpriced: str = "",
) -> None:
    """Verdict, why no price is known, memory, latency, limits, and what it rests on."""
    page.heading(verdict(estimate, ways))
    if estimate.fits and unpriced:
        page.line(f"price unknown: {unpriced}")
    each = "one device" if serving.tp == 1 else f"{serving.tp} devices"
    copies = f"a replica on {each}" if estimate.replicas == 1 else f"{estimate.replicas:,} replicas of {each}"
    page.line(
        f"{name} in {serving.weights}; {copies}; on each a batch of "
        f"{serving.batch:,}: {serving.prompt_tokens:,} tokens of prompt, {serving.new_tokens:,} new ones"
    )
    if len(ways) > 1:
        page.line(f"would make it fit: {'; '.join(ways)}")
    page.line()
    memory = estimate.memory
    rows = [(part, format_bytes(getattr(memory, part))) for part in ("weights", "cache", "activations", "context")]
    page.table(("memory of a device", "size"), [*rows, ("total", format_bytes(memory.total_bytes))])
    page.line()
    first, step = estimate.first_token_s, estimate.step_s
    page.table(
        ("latency", "time", "between"),
        [
            ("first token, alone", format_seconds(first.mid), _between(first.low, first.high)),
            ("each further token", format_seconds(step.mid), _between(step.low, step.high)),
        ],
    )
    page.line(f"mostly {estimate.step.bottleneck}")
    page.line()
    page.table(
        ("limit", "value"),
        [
            ("cache of a token", amount(estimate.cache_bytes_per_token, "bytes")),
            ("largest batch at this length", format_count(estimate.largest_batch)),
            ("longest sequence at this batch", f"{estimate.largest_tokens:,} tokens"),
        ],
    )
    page.line()
    page.table(("rests on", "value", "origin", "source"), [assumption_row(entry) for entry in estimate.assumptions])


def _between(low: float, high: float) -> str:
    return f"{format_seconds(low)} and {format_seconds(high)}"
