"""Tables about rented ways to do a run: what storage and egress add, doubtful prices, spot nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.core.money import format_hourly, format_usd
from trainwright.core.units import format_seconds
from trainwright.render.numbers import expected
from trainwright.render.page import Page

if TYPE_CHECKING:
    from trainwright.planner.search.ranking import Option


def keeps_at_a_price(option: Option) -> bool:
    """Returns whether the price of storage or of egress is known where a way is rented."""
    rented = option.price is not None and bool(option.price.provider)
    return rented and not (option.storage_usd is None and option.egress_usd is None)


def show_beside(page: Page, options: Sequence[Option]) -> None:
    """Shows what storage and egress cost beside the rental, each by itself; of what is rented from a cloud."""
    rented = [(each, each.usd) for each in options if each.price and each.price.provider and each.usd is not None]
    if not rented:
        return
    page.line()
    if not any(map(keeps_at_a_price, options)):
        page.line("beside the rental: storage and egress, whose prices are unknown there")
        return
    rows = []
    for option, usd in rented:
        parts = {"storage": option.storage_usd, "egress": option.egress_usd}
        known = [each for each in parts.values() if each is not None]
        missing = [name for name, each in parts.items() if each is None]
        whole = format_usd(usd + sum(known)) if known else ""
        left = f" without {missing[0]}" if known and missing else ""
        costs = ("unknown" if each is None else format_usd(each) for each in parts.values())
        rows.append((option.cluster, option.source, format_usd(usd), *costs, whole + left))
    page.table(("beside the rental", "from", "rental", "storage", "egress", "in all"), rows)


def show_doubtful(page: Page, rows: Sequence[Option]) -> None:
    """Shows what would be cheaper at prices that may not be had, with what speaks against them."""
    if not rows:
        return
    page.line()
    page.table(
        ("run on", "from", "time", "cost", "price per hour", "doubtful because"),
        [
            (
                row.cluster,
                row.source,
                format_seconds(row.seconds),
                "" if row.usd is None else format_usd(row.usd),
                "" if row.price is None else format_hourly(row.price.usd_per_device_hour),
                row.doubt,
            )
            for row in rows
        ],
        title="cheaper, were these prices to be had",
    )


def doubtful_lines(rows: Sequence[Option]) -> list[str]:
    """Returns each of what would be cheaper at prices that may not be had in one line."""
    return [
        f"cheaper, were this price to be had: {row.cluster} ({row.source}), {format_usd(row.usd or 0.0)}: {row.doubt}"
        for row in rows
    ]


def show_spot(page: Page, rows: Sequence[Option]) -> None:
    """Shows how often nodes are taken back, and the checkpoints that suit it."""
    if not rows:
        return
    page.line()
    columns = ("on spot nodes", "from", "interruptions to expect", "a checkpoint")
    page.table(columns, [(row.cluster, row.provider, expected(row.interruptions), checkpointed(row)) for row in rows])


def checkpointed(option: Option) -> str:
    """Returns when a checkpoint is written: ``every 47 min 32 s``, or ``at its end`` alone."""
    return "at its end" if option.checkpoints <= 1 else f"every {format_seconds(option.checkpoint_interval_s)}"
