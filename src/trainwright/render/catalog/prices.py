"""Price lists: their age, what they offer, what was refused, what an update brought."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from trainwright.core.frozen import dataclass
from trainwright.core.money import format_hourly
from trainwright.hardware.prices.price_list import OLD_DAYS, days_old
from trainwright.hardware.prices.snapshot import not_before
from trainwright.render.page import Page, without_empty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainwright.hardware.prices.feed import Updated
    from trainwright.hardware.prices.price_list import PriceList
    from trainwright.hardware.prices.snapshot import Snapshot
    from trainwright.spec.device import Price

ADD = "one of your own: trainwright hardware prices add"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stock:
    """The price lists in use.

    Attributes:
        lists: the packaged and the fetched lists.
        offers: prices in use, counted by provider.
        unknown: titles of clouds without a price.
        refused: rows that were not taken, counted by reason.
        doubtful: prices that are used where there is no other.
    """

    lists: Sequence[Snapshot]
    offers: Mapping[str, int]
    unknown: Sequence[str]
    refused: Mapping[str, int]
    doubtful: int

    @classmethod
    def of(cls, lists: Sequence[Snapshot], prices: PriceList, clouds: Sequence[str]) -> Stock:
        """Counts the prices of ``lists``; ``clouds`` are the titles of all clouds."""
        every = [price for offered in prices.prices.values() for price in offered]
        offers: dict[str, int] = {}
        for price in every:
            offers[price.provider] = offers.get(price.provider, 0) + 1
        return cls(
            lists=lists,
            offers=offers,
            unknown=[title for title in clouds if title not in offers],
            refused=prices.refused,
            doubtful=sum(bool(price.doubt) for price in every),
        )


def stock_document(stock: Stock) -> dict[str, Any]:
    """Returns the JSON document of the price lists."""
    lists = [
        {
            "name": each.name,
            "recorded": each.recorded,
            "rows": len(each.rows),
            "oldest": each.oldest or None,
            "undated": each.undated,
            "path": each.path,
        }
        for each in stock.lists
    ]
    return {
        "lists": lists,
        "offers": stock.offers,
        "unknown": stock.unknown,
        "refused": stock.refused,
        "doubtful": stock.doubtful,
    }


def show_stock(stock: Stock, page: Page, *, sizes: str) -> None:
    """Shows the lists, the providers, what is unknown or refused; ``sizes`` is a line about the whole catalogue."""
    page.line(sizes)
    page.line()
    rows = [
        (each.name, each.recorded, _oldest(each), each.undated, len(each.rows), str(each.path or "packaged"))
        for each in stock.lists
    ]
    page.table(("price list", "collected", "oldest price", "without a date", "rows", "where"), rows)
    page.line()
    page.table(("provider", "prices in use"), sorted(stock.offers.items()))
    page.line()
    page.line(f"no price known: {', '.join(stock.unknown)}")
    page.line(f"rows refused: {counted(stock.refused)}")
    page.line(f"doubtful, used where there is no other: {stock.doubtful} spot prices near their floor")
    page.note("newer prices: trainwright catalog update")


def _oldest(each: Snapshot) -> str:
    """Returns the age of a list's oldest price, as far as one is known: collecting it makes no price younger."""
    return age(each.oldest) if each.oldest else "unknown"


def _at_most(day: str) -> str:
    """Returns the age of a price that is not older than a day; empty where none is known."""
    return f"<= {age(day)}" if day else ""


def price_document(device: str, price: Price) -> dict[str, Any]:
    """Returns the JSON document of a price; its age in days is null where nobody knows it."""
    return {
        "device": device,
        "provider": price.provider,
        "region": price.region,
        "kind": price.kind,
        "usd_per_device_hour": price.usd_per_device_hour,
        "instance": price.instance,
        "date": price.date or None,
        "not_before": not_before(price) or None,
        "days_old": days_old(price, datetime.now(UTC).date()),
        "source": price.source,
        "as_of": price.as_of,
        "doubt": price.doubt or None,
    }


def no_price(asked: Sequence[str], alone: Sequence[str]) -> str:
    """Returns a line: no price is known, and which of the filters has none even ``alone``."""
    if not asked:
        return f"no price is known; {ADD}"
    if alone:
        return f"no price is known: {', '.join(alone)} {'has' if len(alone) == 1 else 'have'} none in any list; {ADD}"
    return f"no price is known for {' with '.join(asked)} together, though each alone has some; {ADD}"


def show_prices(listed: Sequence[tuple[str, Price]], page: Page, nothing: str = "") -> None:
    """Shows prices, the cheapest of each device first, with region, age and source; notes how many are old.

    ``nothing`` is the line where there is none.

    Where nobody knows the day the age is empty: the note says of how many. Sources stand below, by number.
    """
    if not listed:
        page.line(nothing or no_price((), ()))
        return
    sources = list(dict.fromkeys(_source(price) for _, price in listed))
    rows = [
        (
            device,
            price.provider,
            price.region,
            price.kind.replace("_", "-"),
            format_hourly(price.usd_per_device_hour).removeprefix("$"),
            price.instance,
            age(price.date) if price.date else _at_most(not_before(price)),
            f"[{sources.index(_source(price)) + 1}]",
            price.doubt,
        )
        for device, price in listed
    ]
    columns = ("device", "cloud", "region", "kind", "$/h", "instance", "age", "source", "doubtful because")
    page.table(*without_empty(columns, rows))
    page.line()
    page.line("sources")
    for number, source in enumerate(sources, start=1):
        page.line(f"  [{number}] {source}")
    if (text := old_prices([price for _, price in listed])) is not None:
        page.note(text)


def _source(price: Price) -> str:
    return f"{price.source}@{price.as_of}" if price.as_of else price.source


def old_prices(prices: Sequence[Price]) -> str | None:
    """Returns a warning about prices that are old or of an unknown day; None where there is none."""
    ages = [days_old(price, datetime.now(UTC).date()) for price in prices]
    every, old, unknown = len(ages), sum(each is not None and each > OLD_DAYS for each in ages), ages.count(None)
    if not old and not unknown:
        return None
    counts = {f"older than {OLD_DAYS} days": old, "of an unknown day": unknown}
    whole = next((what for what, count in counts.items() if count == every), None)
    if whole is not None:
        said = f"all {every:,} prices are {whole}" if every > 1 else f"the only price is {whole}"
    else:
        named = " and ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        said = f"of {every:,} prices {named}"
    return f"{said}; newer ones: trainwright catalog update"


def update_document(each: Updated) -> dict[str, Any]:
    """Returns the JSON document of an updated list."""
    return {
        "cloud": each.cloud,
        "source": each.source,
        "offers": each.offers,
        "devices": each.devices,
        "refused": each.refused,
        "path": each.path,
        "error": None if each.error is None else str(each.error),
    }


def show_update(results: Sequence[Updated], page: Page, *, folder: Path) -> None:
    """Shows a row for each list that was fetched, and where they were written."""
    rows = [(each.cloud, each.offers, each.devices, counted(each.refused or {})) for each in results]
    page.table(("cloud", "prices", "devices", "rows refused"), rows)
    page.line(f"written to {folder}")


def age(recorded: str) -> str:
    """Returns the time since a day: ``3 days``, ``today``, or ``unknown``."""
    try:
        days = (datetime.now(UTC).date() - date.fromisoformat(recorded)).days
    except ValueError:
        return "unknown"
    if days < 1:
        return "today"
    return "1 day" if days == 1 else f"{days} days"


def counted(refused: Mapping[str, int]) -> str:
    """Returns the reasons with their counts, the most frequent first: ``3 no price; 1 unknown device``."""
    rows = sorted(refused.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} {reason}" for reason, count in rows) or "none"
