from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures.page import WrittenPage
from trainwright.core.errors import DataError
from trainwright.hardware.prices.feed import Updated
from trainwright.hardware.prices.price_list import PriceList
from trainwright.hardware.prices.snapshot import Snapshot
from trainwright.render.catalog.prices import (
    Stock,
    age,
    counted,
    old_prices,
    show_prices,
    show_stock,
    show_update,
    stock_document,
)
from trainwright.render.catalog.prices import update_document as document_of
from trainwright.spec.device import Price


@pytest.mark.parametrize(("days", "text"), [(0, "today"), (1, "1 day"), (40, "40 days")])
def test_ages_are_days(days, text):
    assert age((datetime.now(UTC).date() - timedelta(days=days)).isoformat()) == text


def test_an_age_without_a_date_is_unknown():
    assert age("last spring") == "unknown"


def test_refusals_are_counted_the_most_frequent_first():
    assert counted({"no price": 1, "unknown device": 3}) == "3 unknown device; 1 no price"
    assert counted({}) == "none"


def test_providers_are_counted_and_clouds_without_a_price_named():
    price = Price(
        usd_per_device_hour=2.0, kind="spot", provider="AWS", region="r", as_of="2026-01-01", source="s", doubt="floor"
    )
    prices = PriceList(prices={"h100-sxm": (price, price)}, refused={"no price": 2})
    lists = [Snapshot(name="aws", recorded="2026-01-01", rows=({"date": "2025-12-01"}, {"as_of": "2c3d7ea"}))]
    stock = Stock.of(lists, prices, ["AWS", "GCP"])
    assert (stock.offers, stock.unknown, stock.doubtful) == ({"AWS": 2}, ["GCP"], 2)
    assert stock_document(stock)["lists"] == [
        {"name": "aws", "recorded": "2026-01-01", "rows": 2, "oldest": "2025-12-01", "undated": 1, "path": None}
    ]
    page = WrittenPage()
    show_stock(stock, page, sizes="1 device")
    days = (datetime.now(UTC) - datetime(2025, 12, 1, tzinfo=UTC)).days
    assert page.tables["price list"] == [("aws", "2026-01-01", f"{days} days", 1, 2, "packaged")]
    assert page.tables["provider"] == [("AWS", 2)] and "no price known: GCP" in page.lines


def listed(*dates):
    one = Price(usd_per_device_hour=2.0, kind="spot", provider="AWS", region="r", as_of="2c3", source="s")
    return [("l4", replace(one, date=date)) for date in dates]


def test_ages_of_prices_are_said_once_and_their_sources_by_number():
    page, today = WrittenPage(), datetime.now(UTC).date()
    show_prices(listed((today - timedelta(days=100)).isoformat(), "", ""), page)
    assert [row[5:] for row in page.tables["device"]] == [("100 days", "[1]"), ("", "[1]"), ("", "[1]")]
    assert page.lines[-2:] == ["sources", "  [1] s@2c3"]
    expected = "of 3 prices 1 older than 90 days and 2 of an unknown day; newer ones: trainwright catalog update"
    assert page.notes == [expected]


def test_a_source_without_a_day_stands_alone():
    (offer,) = listed("")
    page = WrittenPage()
    show_prices([(offer[0], replace(offer[1], source="own.csv:2", as_of=""))], page)
    assert page.lines[-1] == "  [1] own.csv:2"


@pytest.mark.parametrize(
    ("dates", "said"),
    [
        (["", ""], "all 2 prices are of an unknown day"),
        ([""], "the only price is of an unknown day"),
        (["2025-01-01", None], "of 2 prices 1 older than 90 days"),
    ],
)
def test_ages_are_noted_by_share(dates, said):
    today = datetime.now(UTC).date().isoformat()
    text = old_prices([price for _, price in listed(*(today if date is None else date for date in dates))])
    assert text == f"{said}; newer ones: trainwright catalog update"
    assert old_prices([price for _, price in listed(today)]) is None


def test_an_update_says_where_it_went_and_what_failed():
    page = WrittenPage()
    show_update([Updated(cloud="aws", source="file", offers=3, devices=2)], page, folder=Path("prices"))
    assert page.tables["cloud"] == [("aws", 3, 2, "none")] and page.lines == ["written to prices"]
    failed = Updated(cloud="gcp", source="url", error=DataError("no list there"))
    assert document_of(failed)["error"] == "no list there"
