from __future__ import annotations

import pytest

from fixtures.page import WrittenPage
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.cards import card, cards
from trainwright.hardware.prices.price_list import price_list
from trainwright.render.catalog.devices import card_document, device_document, show_comparison, show_device, show_list


@pytest.fixture
def prices():
    return price_list()


def test_an_empty_list_says_so(prices):
    page = WrittenPage()
    show_list([], page)
    assert page.lines == ["no such device in the catalogue"] and not page.tables


def test_a_row_for_each_device(prices):
    page = WrittenPage()
    show_list(cards(prices, kind="tpu"), page)
    assert len(page.tables["device"]) == 7 and page.notes[0].startswith("7 devices")


def test_sources_are_numbered_once(prices):
    page = WrittenPage()
    show_device(card("h100-sxm", prices), cluster("2x8xh100-sxm"), prices, page)
    numbered = page.lines[page.lines.index("sources") + 1 :]
    assert [line.split()[0] for line in numbered] == [f"[{number}]" for number in range(1, len(numbered) + 1)]
    assert len({line.split(maxsplit=1)[1] for line in numbered}) == len(numbered)


def test_what_products_were_measured_to_reach_stands_beside_the_peak_with_its_source(prices):
    page = WrittenPage()
    show_device(card("h100-sxm", prices), cluster("8xh100-sxm"), prices, page)
    rows = {row[0]: row[1:] for row in page.tables["of one device"]}
    value, source = rows["bf16, matrix products measured"]
    assert value == "794.5 TFLOP/s, 80.3% of the peak"
    assert any(line.split()[0] == source and "matmul FLOPS" in line for line in page.lines if line.strip())
    page = WrittenPage()
    show_device(card("l40s", prices), cluster("8xl40s"), prices, page)
    assert all("measured" not in row[0] for row in page.tables["of one device"])


def test_unknown_rates_are_dashes_beside_known_ones(prices):
    page = WrittenPage()
    show_comparison([card("h100-sxm", prices), card("v100-sxm2-32gb", prices)], page)
    rows = {row[0]: row[1:] for row in page.tables[""]}
    assert rows["bf16"] == ("989.4 TFLOP/s", "-")


def test_the_document_has_the_device_and_all_its_offers(prices):
    each = card("h100-sxm", prices)
    document = device_document(each, cluster("2x8xh100-sxm"), prices)
    assert card_document(each).items() <= document.items()
    assert document["offers"] == prices.offers("h100-sxm") and document["node"].devices == 8
