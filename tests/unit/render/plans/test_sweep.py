from __future__ import annotations

from dataclasses import replace

from fixtures.page import WrittenPage
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.sweep import Point, Sweep
from trainwright.render.plans.sweep import show
from trainwright.spec.plan import Interval

MODEL = catalogue_model("llama3-8b")
TIME = Interval(low=50.0, mid=60.0, high=70.0)


def point(value, *, series=None, fit="fits", tokens_per_s=1000.0, devices=8):
    return Point(
        value=value,
        series=series,
        devices=devices,
        layout="dp_shard=8",
        fit=fit,
        memory_bytes=2.0**30,
        step_s=2.0,
        tokens_per_s=tokens_per_s,
        batch_tokens=4096,
        mfu=0.5,
        exposed_s=0.5,
        seconds=TIME,
        efficiency=1.0,
    )


def test_one_table_for_each_series_and_where_devices_stop_paying():
    points = (point("1", series="strong"), point("1", series="weak"))
    page = WrittenPage()
    show(Sweep(axis="nodes", points=points, stops_at=64), page, MODEL)
    assert page.headings == [
        "strong scaling: the batch stays",
        "weak scaling: the batch grows with the nodes",
    ]
    assert page.lines[-1].startswith("more than 64 devices do not pay")


def test_a_value_without_a_plan_has_its_reason_below_and_one_too_large_no_time():
    points = (Point(value="3", reason="heads cannot be divided"), point("4", fit="does not fit"))
    page = WrittenPage()
    show(Sweep(axis="tp", points=points), page, MODEL)
    refused, large = page.tables["tp"]
    assert refused[:2] == ("3", "cannot run") and page.lines == ["tp 3: heads cannot be divided"]
    assert large[2] == "1 GiB (does not fit)" and set(large[3:]) == {""}


def test_a_row_has_the_share_of_communication_that_nothing_hides():
    page = WrittenPage()
    show(Sweep(axis="scale_out", points=(point("25Gb/s"),)), page, MODEL)
    (row,) = page.tables["scale out"]
    assert row == ("25Gb/s", "dp_shard=8", "1 GiB", "2 s", "1,000", "50.0%", "25.0%", "1 min 00 s", "unknown")


def test_a_batch_and_its_speed_are_of_images_where_a_model_sees_them():
    page, model = WrittenPage(), catalogue_model("vit-b-16")
    tall = replace(point("2", series="strong"), batch_tokens=4096 * 197, tokens_per_s=197.0 * 500)
    show(Sweep(axis="nodes", points=(tall,), stops_at=2), page, model)
    (row,) = page.tables["nodes"]
    assert "4,096" in row and "500" in row
