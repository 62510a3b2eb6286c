"""The ways of a recommendation as rows and in short: where, how long, for how much, and in what layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.core.frozen import dataclass
from trainwright.core.money import format_hourly, format_usd
from trainwright.core.units import format_bytes, format_count, format_factor, format_seconds
from trainwright.hardware.prices.snapshot import not_before
from trainwright.planner.plan.layout import mesh
from trainwright.render.numbers import energy, format_rate
from trainwright.render.page import Page, without_empty

if TYPE_CHECKING:
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.ranking import Option
    from trainwright.spec.device import Price
    from trainwright.spec.run import RunSpec

COLUMNS = ("", "run on", "from", "region", "price", "time", "cost", "images/s", "MFU", "memory", "layout")

CHANGE_ROWS = 8
LEAST_MORE = 0.005
"""From this share on an answer says how many more tokens it trains; less is the last step, which is whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """In what the ways differ, so that rows name it, and what was asked for, from which some differ too."""

    precisions: tuple[str, ...]
    batches: tuple[int, ...]
    asked: RunSpec

    @classmethod
    def of(cls, every: Sequence[Option], run: RunSpec) -> Looks:
        """Returns what differs among all ways of a run; the commonest precision first."""
        counted = Counter(option.precision for option in every).most_common()
        precisions = tuple(precision for precision, _ in counted) or (run.workload.precision,)
        batches = tuple(sorted({option.batch_tokens for option in every}))
        return cls(precisions=precisions, batches=batches, asked=run)

    def told(self, option: Option) -> str:
        """Returns a way in a few words, and of a larger batch the tokens that it trains beyond those asked for."""
        work, model = self.asked.workload, self.asked.model
        more = option.tokens / work.total_tokens - 1
        if more < LEAST_MORE:
            return in_short(option)
        least = f"--batch {work.batch_tokens // model.batch_unit_tokens} for {self.counted(work.total_tokens)}"
        why = f"a batch of {self.counted(option.batch_tokens)} needs {more:.1%} more for the same loss; {least}"
        return f"{in_short(option)}, {self.counted(option.tokens)} {model.batch_unit} ({why})"

    def counted(self, tokens: int) -> str:
        """Returns tokens as people count what is trained on: 4.194M of them, or 512 images."""
        return format_count(tokens / self.asked.model.batch_unit_tokens)

    def images_rate(self, option: Option) -> str:
        """Returns the images of a second; empty where a model sees none."""
        model = self.asked.model
        return format_rate(option.batch_tokens / model.batch_unit_tokens / option.step_s) if model.sees_images else ""


def show_ways(page: Page, options: Sequence[Option], looks: Looks, *, title: str) -> None:
    """Shows ways as a table, without the columns in which none says anything."""
    if options:
        page.line()
        page.table(*without_empty(COLUMNS, [_row(option, looks) for option in options]), title=title)


def show_changes(page: Page, name: str, rows: Sequence[Change]) -> None:
    """Shows what would make the run fit on the devices of such a name."""
    page.line()
    if not rows:
        page.line(f"no change makes it fit on {name}")
        return
    table = [
        (
            f"{each.name}{' (adapters alone are trained)' * each.trains_less}{' (uncertain)' * each.best.unsure}",
            "another run" if each.is_another_run else f"{format_factor(each.slowdown)}x",
            mesh(each.best.parallel, each.best.recompute),
        )
        for each in rows[:CHANGE_ROWS]
    ]
    page.table(("change", "device-seconds a token", "layout"), table, title=f"what would make it fit on {name}")


def in_short(option: Option) -> str:
    """Returns a way in a few words: ``8xh100-sxm (Nebius spot), 11.6 days, $7,615, 7,680 kWh``.

    What may not fit says so: ``uncertain: 78.3 GiB of 78.8 GiB``.
    """
    source = f" ({option.source})" if option.source else ""
    cost = "price unknown" if option.usd is None else _cost(option)
    drawn = "" if option.kwh is None else f", {energy(option.kwh)}"
    unsure = f", uncertain: {_memory(option)}" if option.unsure else ""
    return f"{option.cluster}{source}, {format_seconds(option.seconds)}, {cost}{drawn}{unsure}"


def _memory(option: Option) -> str:
    return f"{format_bytes(option.memory_bytes)} of {format_bytes(option.memory_available_bytes)}"


def _cost(option: Option) -> str:
    """Returns dollars; of a contract or a term for how long they are paid, which the hourly price does not say."""
    term = f" for {format_seconds(option.billed_s or 0.0)}" if option.is_paid_longer else ""
    return format_usd(option.usd or 0.0) + term


def _row(option: Option, looks: Looks) -> tuple[str, ...]:
    precision = f"; {option.precision}" if option.precision != looks.precisions[0] else ""
    batch = f"; batch {looks.counted(option.batch_tokens)}" if len(looks.batches) > 1 else ""
    marks = ("*" if option.front else "") + ("?" if option.unsure else "")
    return (
        marks,
        option.cluster,
        option.source,
        "" if option.price is None else option.price.region,
        "" if option.price is None else _hourly(option.price),
        format_seconds(option.seconds),
        "" if option.usd is None else _cost(option),
        looks.images_rate(option),
        f"{option.mfu:.0%}",
        _memory(option),
        mesh(option.parallel, option.recompute) + batch + precision,
    )


def _hourly(price: Price) -> str:
    """Returns a price with its day, or the first that it can be of: a note says of how many nobody knows it."""
    since = not_before(price)
    return f"{format_hourly(price.usd_per_device_hour)}/h {price.date or (since and f'>= {since}')}".rstrip()
