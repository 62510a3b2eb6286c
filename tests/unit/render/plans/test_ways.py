"""The ways of a recommendation as rows and in short."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from fixtures.page import WrittenPage
from fixtures.recommend import option
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.render.plans.ways import Looks, in_short, show_ways
from trainwright.spec.device import Price

PRICE = Price(usd_per_device_hour=2.0, kind="spot", provider="Nebius", region="eu", as_of="2c3", source="s")
ASKED = SimpleNamespace(
    workload=SimpleNamespace(precision="bf16", total_tokens=15 * 10**12, batch_tokens=4194304),
    model=catalogue_model("llama3-70b"),
)
WAY = option(seconds=3600.0, usd=16.0, price=PRICE, usd_per_device_hour=2.0)


def rows(*options):
    page = WrittenPage()
    show_ways(page, options, Looks.of(options, ASKED), title="ways")
    return page.tables.get("ways", [])


def test_a_way_in_short_has_place_time_and_cost_or_says_that_no_price_is_known():
    assert in_short(WAY) == "8xh100-sxm (Nebius spot), 1 h 00 min, $16"
    assert in_short(replace(WAY, usd=None)) == "8xh100-sxm (Nebius spot), 1 h 00 min, price unknown"
    tight = replace(WAY, unsure=True, memory_bytes=75 * 2**30, memory_available_bytes=80 * 2**30)
    assert in_short(tight) == f"{in_short(WAY)}, uncertain: 75 GiB of 80 GiB"


def test_rows_name_what_differs_and_no_column_is_empty():
    assert rows() == []
    (row,) = rows(WAY)
    assert row[0] == "8xh100-sxm" and row[-1] == "dp_shard 8; micro batch 1" and "" not in row
    other = replace(WAY, precision="fp16", batch_tokens=2048, front=True)
    plain, marked = rows(WAY, other)
    assert (plain[0], marked[0]) == ("", "*")
    assert plain[-1].endswith("; batch 1,024") and marked[-1].endswith("; batch 2,048; fp16")


def test_an_answer_says_that_a_larger_batch_trains_more_tokens_than_were_asked_for():
    looks = Looks.of([WAY], ASKED)
    larger = replace(WAY, tokens=16330170302464, batch_tokens=16777216)
    why = "16.33T tokens (a batch of 16.78M needs 8.9% more for the same loss; --batch 4194304 for 15T)"
    assert looks.told(larger) == f"{in_short(larger)}, {why}"
    assert looks.told(replace(WAY, tokens=15 * 10**12 + 10**9)) == in_short(WAY)  # the last step is whole
