"""What stands beside a rental: storage and egress where their prices are known, one line where none is."""

from __future__ import annotations

from dataclasses import replace

from fixtures.page import WrittenPage
from fixtures.recommend import option
from trainwright.render.plans.rented import doubtful_lines, keeps_at_a_price, show_beside, show_spot
from trainwright.spec.device import Price

PRICE = Price(usd_per_device_hour=2.0, kind="spot", provider="Nebius", region="r", as_of="2c3", source="s")
BARE = option(seconds=60.0, usd=100.0, price=PRICE)
KEPT = option(seconds=60.0, usd=100.0, price=PRICE, storage_usd=20.0)
WHOLE = option(seconds=60.0, usd=100.0, price=PRICE, storage_usd=20.0, egress_usd=3.0)


def beside(*options):
    page = WrittenPage()
    show_beside(page, options)
    return page


def test_prices_that_nobody_knows_are_one_line():
    page = beside(BARE, BARE)
    assert page.tables == {} and not keeps_at_a_price(BARE)
    assert page.lines == ["", "beside the rental: storage and egress, whose prices are unknown there"]


def test_each_is_a_cost_of_its_own_and_the_sum_says_what_it_lacks():
    page = beside(BARE, KEPT, WHOLE)
    assert [row[2:] for row in page.tables["beside the rental"]] == [
        ("$100", "unknown", "unknown", ""),
        ("$100", "$20", "unknown", "$120 without egress"),
        ("$100", "$20", "$3", "$123"),
    ]
    assert keeps_at_a_price(KEPT) and keeps_at_a_price(WHOLE)


def test_what_no_cloud_rents_has_neither():
    page = beside(option(seconds=60.0, usd=0.0), option(seconds=60.0, usd=None, price=PRICE))
    assert page.tables == {} and page.lines == []


def test_a_doubtful_price_is_one_line_with_what_speaks_against_it():
    (line,) = doubtful_lines([replace(BARE, price=replace(PRICE, doubt="hardly to be had"))])
    assert line == "cheaper, were this price to be had: 8xh100-sxm (Nebius spot), $100: hardly to be had"


def test_spot_nodes_say_how_often_they_stop():
    page = WrittenPage()
    show_spot(page, [BARE])
    assert page.tables["on spot nodes"] == [("8xh100-sxm", "Nebius", "3", "every 10 min 00 s")]
