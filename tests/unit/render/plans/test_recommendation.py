"""What ``recommend`` prints and draws."""

from __future__ import annotations

import json
import re

import pytest

from fixtures.recommend import SMALL, printed
from fixtures.recommend import option as a_way
from trainwright.cli.main import main
from trainwright.hardware.catalogue.nodes import written
from trainwright.planner.search.ranking import Goals, ranked
from trainwright.render.plans.recommendation import _range


def test_the_table_has_ranks_the_front_and_reasons(capsys):
    out = printed(capsys, "--devices", "h100-sxm,l4,mi300x", "--budget", "5k$", "--verbose")
    lines = out.splitlines()
    assert lines[0].startswith("best for a budget of $5,000: ")
    assert any("20B tokens in " in line for line in lines[1:4])
    assert "time against cost: nothing betters these" in out
    assert any(line.startswith("*") and "h100-sxm" in line for line in lines)
    assert "too dear" in out and "times the budget" in out
    assert "the prediction's error" not in out  # a note, on stderr
    assert "a spot node of aws until it is taken back" in out and "4,430 hours" in out


def test_one_row_for_each_device_and_kind_of_price(capsys):
    asked = ("--devices", "h100-sxm,l4")
    options = json.loads(printed(capsys, *asked, "--json"))["options"]
    kinds = {(option["device"], option["price_kind"]) for option in options if not option["price"]["doubt"]}
    out = printed(capsys, *asked)
    _, _, table = out.partition("best of each device and kind of price\n")
    rows = table.partition("\n\n")[0].splitlines()[1:]
    assert 1 < len(rows) == len(kinds)


def cluster_of(option):
    """The cluster of a way in the document, in one word."""
    return written(option["nodes"], option["devices"] // option["nodes"], option["device"])


JOURNEYS = {
    "a budget and a deadline": (
        *("recommend", "--model", "qwen3-8b", "--tokens", "200B"),
        *("--budget", "60k$", "--deadline", "21d"),
    ),
    "or on what is there": (
        *("recommend", "--model", "qwen3-8b", "--tokens", "200B", "--budget", "60k$", "--deadline", "21d"),
        *("--have", "8xa100-80gb"),
    ),
    "neither": ("recommend", "--model", "llama3-70b", "--tokens", "15T"),
    "adapters on what is there": (
        *("recommend", "--model", "qwen3-14b", "--method", "lora"),
        *("--have", "8xascend-910b2", "--cloud", "alibaba"),
    ),
}


@pytest.mark.parametrize("asked", JOURNEYS.values(), ids=JOURNEYS)
def test_the_first_screen_has_room_in_a_terminal_and_all_that_decides(capsys, asked):
    assert main([*asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and lines[-1].startswith("next: trainwright plan ")
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    named = " ".join(lines[:3])
    assert all(cluster_of(option) in named for option in document["headlines"].values())
    start = next(place for place, line in enumerate(lines) if line.startswith("rests on"))
    assert (
        lines[start + 4].startswith("left out: ")
        and f"all {len(document['assumptions'])} assumptions" in lines[start + 4]
    )
    title = next(place for place, line in enumerate(lines) if line.startswith("best of each device"))
    rows = [line for line in lines[title:] if "micro batch" in line]
    assert 1 <= len(rows) <= 8 + 3


def test_goals_have_the_cheapest_and_the_fastest_beside_the_best(capsys):
    asked = ("--devices", "h100-sxm,b200-sxm", "--deadline", "10d")
    document = json.loads(printed(capsys, *asked, "--json"))
    first, *lines = printed(capsys, *asked).splitlines()
    best = cluster_of(document["options"][0])
    assert f": {best} (" in first
    for name, option in document["headlines"].items():
        if option != document["options"][0]:
            assert any(line.startswith(f"{name}: {cluster_of(option)} (") for line in lines[:3])


def test_the_first_line_surely_fits_or_says_that_it_may_not(capsys):
    asked = ("--devices", "a100-80gb", "--price-kinds", "on_demand", "--model", "mistral-7b", "--tokens", "10B")
    document = json.loads(printed(capsys, *asked, "--json"))
    least = min(document["options"], key=lambda option: option["usd"])
    assert least["unsure"], "choose a run whose cheapest way may not fit"
    first, *lines = printed(capsys, *asked).splitlines()
    assert first.startswith("cheapest") and "uncertain" not in first and f": {cluster_of(least)} (" not in first
    (line,) = [line for line in lines if line.startswith("cheaper if it fits: ")]
    assert f"{cluster_of(least)} (" in line and ", uncertain: " in line
    (alone,) = [line for line in printed(capsys, *asked, "--most-devices", "2").splitlines() if "cheapest" in line]
    assert f"{cluster_of(least)} (" in alone and ", uncertain: " in alone


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (("--precision", "fp8", "--devices", "a100-80gb"), "no fp8 rate is known"),
        (("--cloud", "runpod", "--price-kinds", "reserved"), "no known price in these clouds"),
    ],
)
def test_the_first_line_says_why_there_is_no_way(capsys, asked, line):
    out = printed(capsys, *asked, code=1)
    assert out.splitlines()[0] == f"none of these devices will do: {line}"


def test_reasons_why_there_is_no_way_are_what_was_asked_for_and_how_many_devices_each_left_out(capsys):
    out = printed(capsys, "--layout", "tp=9999", "--devices", "h100-sxm,l4", code=1)
    assert out.splitlines()[0] == "none of these devices will do: no layout as asked divides model and batch"
    asked = ("--precision", "fp8", "--layout", "tp=9999", "--devices", "a100-80gb,h100-sxm,h200-sxm")
    first, _, other = printed(capsys, *asked, code=1).splitlines()[0].partition("; or ")
    assert first.endswith("no layout as asked divides model and batch (2 devices)")
    assert other == "no fp8 rate is known (1 device)"


def test_precisions_are_named_where_devices_differ(capsys):
    out = printed(capsys, "--devices", "v100-sxm-16gb,h100-sxm")
    (usual,) = {each for each in ("bf16", "fp16") if f"; {each} where no row says another, adamw" in out}
    (other,) = {"bf16", "fp16"} - {usual}
    rows = [line for line in out.splitlines() if "micro batch" in line]
    assert {line.endswith(f"; {other}") for line in rows} == {True, False}
    assert all(line.endswith("; fp16") == (other == "fp16") for line in rows if "v100-sxm" in line)
    assert f"; {usual}" not in "".join(rows)


def test_the_range_is_that_of_the_ways_that_the_answer_names(capsys):
    # Rates of Ascend are of few runs and less sure than an H100's, which alone is named here.
    asked = ("--devices", "h100-sxm,ascend-910b2", "--price-kinds", "on_demand", "--deadline", "30d")
    document = json.loads(printed(capsys, *asked, "--json"))
    ends = [each["high_s"] / each["seconds"] for each in document["options"]]
    named = [document["options"][0], *document["headlines"].values()]
    low = min(each["low_s"] / each["seconds"] for each in named)
    high = max(each["high_s"] / each["seconds"] for each in named)
    assert max(ends) > 1.2 * high, "choose devices whose ranges differ"
    (line,) = [line for line in printed(capsys, *asked).splitlines() if line.startswith("9 of 10 such runs")]
    told = [(float(least), float(most)) for least, most in re.findall(r"between ([0-9.]+) and ([0-9.]+) times", line)]
    assert (min(least for least, _ in told), max(most for _, most in told)) == (round(low, 2), round(high, 2))


def test_ways_that_are_less_sure_have_a_range_of_their_own():
    cheap, fast = a_way(seconds=100.0, usd=10.0), a_way(seconds=40.0, usd=90.0, high_s=160.0)
    near = a_way(seconds=80.0, usd=12.0, high_s=164.0)
    line = _range(ranked([cheap, fast, near], (), Goals()).answers)
    assert line == (
        "9 of 10 such runs take, and cost, between 0.50 and 2.05 times what stands here; "
        "fastest: between 0.50 and 4.00 times"
    )


def test_a_device_without_a_price_is_ranked_by_time_and_says_so(capsys):
    short = printed(capsys, "--devices", "mi300x,h100-sxm")
    (line,) = [line for line in short.splitlines() if line.startswith("fastest without a known price: ")]
    assert "xmi300x, " in line and ", price unknown" in line
    out = printed(capsys, "--devices", "mi300x,h100-sxm", "--verbose")
    start = out.index("fastest without a known price")
    names, first = out[start:].splitlines()[1:3]
    assert "mi300x" in first and not {"from", "price", "cost"} & set(names.split())


def test_an_answer_that_this_trainer_was_never_run_on_says_so_on_the_first_screen(capsys):
    short = printed(capsys, "--have", "8xascend-910b2", "--devices", "ascend-910b2", "--stack", "trainwright")
    (line,) = [line for line in short.splitlines() if line.startswith("training on Ascend NPUs")]
    assert "never run on hardware" in line
    assert "never run on hardware" not in printed(capsys, "--devices", "h100-sxm")


def test_a_doubtful_price_wins_nothing_and_is_shown_apart(capsys):
    arguments = ("--devices", "b300-sxm,h100-sxm", "--deadline", "3d", "--cloud", "aws,nebius")
    document = json.loads(printed(capsys, *arguments, "--json"))
    doubtful = [bool((option["price"] or {}).get("doubt")) for option in document["options"]]
    assert True in doubtful and doubtful == sorted(doubtful)
    assert not any(option["front"] for option, doubt in zip(document["options"], doubtful, strict=True) if doubt)
    out = printed(capsys, *arguments)
    first, best = out.splitlines()[0], out.index("best of each device")
    assert "b300-sxm" not in first or "spot" not in first
    (line,) = [line for line in out.splitlines() if line.startswith("cheaper, were this price to be had: ")]
    assert "11% of on-demand, near the floor of spot prices" in line and "11% of" not in out[best:]
    whole = printed(capsys, *arguments, "--verbose")
    apart = whole.index("cheaper, were these prices to be had")
    assert "11% of on-demand, near the floor of spot prices" in whole[apart:]


def test_where_only_doubtful_prices_meet_the_goals_the_nearest_other_stands_beside(capsys):
    arguments = ("--devices", "b300-sxm", "--cloud", "aws", "--price-kinds", "on_demand,spot")
    options = json.loads(printed(capsys, *arguments, "--json"))["options"]
    cheapest = min(option["usd"] for option in options if not option["price"]["doubt"])
    assert min(option["usd"] for option in options) < cheapest
    first, *rest = printed(capsys, *arguments, "--budget", f"{cheapest - 1:.0f}$").splitlines()
    assert first.startswith("nothing surely meets a budget of") and "AWS spot" in first
    assert first.endswith(f"(AWS on-demand), {first.rpartition('), ')[2]}") and "; closest: " in first
    assert "closest" in rest and "best of each device and kind of price" not in rest


def test_what_one_has_is_named_where_it_misses_the_goals(capsys):
    out = printed(capsys, "--devices", "h100-sxm", "--have", "8xa100-80gb", "--deadline", "1h", "--verbose")
    (row,) = [line for line in out.splitlines() if line.startswith("own 8xa100-sxm-80gb")]
    assert "at its fastest" in row and row.endswith("$0")


def test_what_was_left_out_is_one_line_unless_all_is_wanted(capsys):
    short, whole = printed(capsys, "--devices", "h100-sxm"), printed(capsys, "--devices", "h100-sxm", "--verbose")
    assert "left out: " in short and "--verbose has the reasons" in short and "tensor parallel" not in short
    assert "tensor parallel" in whole and "states" in whole
    assert "9 of 10 such runs take, and cost, between 0." in short


def test_a_term_says_for_how_long_its_dollars_pay(capsys):
    asked = ("--price-kinds", "reserved", "--devices", "trainium1", "--budget", "1000000000$")
    first, *lines = printed(capsys, *asked).splitlines()
    assert " for 365 days" in first
    (row,) = [line for line in lines if "xtrainium1" in line and "AWS reserved" in line and "micro batch" in line]
    assert " for 365 days " in row
    best = json.loads(printed(capsys, *asked, "--json"))["options"][0]
    days = best["billed_s"] / 86400
    dollars = best["devices"] * best["usd_per_device_hour"] * 24 * days
    assert days == 365 and dollars == pytest.approx(best["usd"])
    rented = printed(capsys, "--price-kinds", "on-demand", "--devices", "h100-sxm", "--most-devices", "8")
    assert " for " not in rented.splitlines()[0].partition("$")[2], "a run of days is paid for its days"


def test_the_front_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "front.svg"
    assert main([*SMALL, "--devices", "h100-sxm", "--draw", str(picture), "--quiet"]) == 0
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    unpriced = tmp_path / "unpriced.svg"
    assert main([*SMALL, "--devices", "mi300x", "--draw", str(unpriced), "--quiet"]) == 0
    assert "device-hours" in unpriced.read_text(encoding="utf-8")


def test_spot_rows_say_how_often_they_stop_and_what_checkpoints_suit_that(capsys):
    out = printed(capsys, "--devices", "h100-sxm", "--price-kinds", "spot,on_demand", "--cloud", "nebius", "--verbose")
    head = next(line for line in out.splitlines() if line.startswith("on spot nodes"))
    assert head.split("  ")[0] == "on spot nodes" and "interruptions to expect" in head and "checkpoint" in head
    assert "on spot nodes" not in printed(capsys, "--devices", "h100-sxm", "--price-kinds", "on_demand", "--verbose")


def test_a_price_of_an_unknown_day_says_so(capsys):
    asked = ["--devices", "h100-sxm", "--cloud", "nebius"]
    priced = json.loads(printed(capsys, *asked, "--json"))["options"][0]["price"]
    assert priced["date"] == "", "the packaged list knows the day now: choose another cloud"
    assert main([*SMALL, *asked]) == 0
    shown = capsys.readouterr()
    assert "eu-north1" in shown.out and "unknown day" not in shown.out
    (note,) = [line for line in shown.err.splitlines() if "unknown day" in line]
    assert re.search(r"all \d+ prices are of an unknown day; newer ones: ", note)


def test_what_is_kept_is_shown_where_it_has_a_price_and_marks_are_explained_where_they_stand(capsys):
    of = {}
    for name in ("aws", "nebius"):
        assert main([*SMALL, "--devices", "h100-sxm", "--cloud", name, "--price-kinds", "on_demand", "--verbose"]) == 0
        of[name] = capsys.readouterr()
    assert "beside the rental  from" in of["aws"].out and "storage and egress  " in of["aws"].out
    assert "beside the rental: storage and egress, whose prices are unknown there" in of["nebius"].out
    starred = any(line.startswith("*") for line in of["aws"].out.splitlines())
    assert starred and "* on the front" in of["aws"].err and "? so near" not in of["aws"].err
