from __future__ import annotations

import json

import pytest

from trainwright.cli.main import main


@pytest.fixture(autouse=True)
def packaged_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_list_filters_and_sorts(capsys):
    assert main(["hardware", "list", "--kind", "tpu", "--sort", "flops"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == [
        "device",
        "tpu-v7",
        "tpu-v6e",
        "tpu-v5p",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v3",
        "tpu-v2",
    ]
    assert "$4.20 GCP" in out
    assert "7 devices" in err
    assert main(["hardware", "list", "--min-memory", "10 TB"]) == 0
    assert capsys.readouterr().out == "no such device in the catalogue\n"


def test_every_number_that_is_shown_has_a_source(capsys):
    assert main(["hardware", "show", "H100 80GB SXM5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "h100-sxm (NVIDIA, 2022)"
    start, end = lines.index("") + 2, lines.index("sources")
    facts = [line for line in lines[start:end] if line and "  [" in line]
    assert len(facts) >= 20
    bare = [line for line in lines[start : lines.index("", start)] if "  [" not in line]
    assert [line.split()[0] for line in bare] == ["fp4"]
    known = {line.split()[0] for line in lines[end + 1 :]}
    assert {f"[{line.rsplit('[', 1)[1]}" for line in facts} == known
    dated = ("; 2026-11-20", "vms.csv@", "json@2026-11-", "derived: ", "default: ")
    assert all(any(mark in line for mark in dated) for line in lines[end + 1 :])


def test_show_says_what_is_unknown(capsys):
    assert main(["hardware", "show", "ascend-910c"]) == 0
    out = capsys.readouterr().out
    assert "rental price: unknown" in out
    assert main(["hardware", "show", "a100-40gb"]) == 0
    unpriced = [line.split()[:4] for line in capsys.readouterr().out.splitlines() if line.startswith("unknown")]
    assert ["unknown", "Alibaba", "Cloud", "ecs.gn7-c12g1.3xlarge"] in unpriced


def test_compare(capsys):
    assert main(["hardware", "compare", "a100-80gb", "tpu-v5p", "rtx-4090", "ascend-910b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["a100-sxm-80gb", "tpu-v5p", "rtx-4090", "ascend-910b3"]
    rows = {line[:19].strip(): line[19:].split("  ") for line in lines[1:]}
    assert [cell.strip() for cell in rows["bf16"] if cell] == [
        "312 TFLOP/s",
        "459 TFLOP/s",
        "165.2 TFLOP/s",
        "313 TFLOP/s",
    ]
    assert [cell.strip() for cell in rows["platform"] if cell] == ["CUDA", "XLA", "CUDA", "CANN"]


def test_json_says_the_same(capsys):
    assert main(["hardware", "show", "h100", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "trainwright.hardware.show/1"
    assert shown["flops_per_s"]["bf16"] == 989.4e12
    believed = [offer["usd_per_device_hour"] for offer in shown["offers"] if not offer["doubt"]]
    assert believed == sorted(believed) and len(believed) < len(shown["offers"])
    assert shown["node"]["scale_up"]["name"] == "nvlink4"
    assert main(["hardware", "compare", "h100", "t4", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["devices"]] == ["h100-sxm", "t4"]
    assert main(["hardware", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["devices"]) >= 84


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["show", "h101"], "error: DEVICE: unknown device (seen 'h101'"),
        (["compare", "h100", "h101"], "error: DEVICE: unknown device (seen 'h101'"),
        (["list", "--vendor", "Acorn"], "error: --vendor: unknown vendor (seen 'Acorn'"),
        (
            ["list", "--min-memory", "80"],
            "error: --min-memory: a size needs its unit (seen '80', expected for example 80GiB)",
        ),
        (["list", "--min-memory", "lots"], "error: --min-memory: cannot read a quantity (seen 'lots'"),
        (["list", "--sort", "beauty"], "error: trainwright hardware list: argument --sort: invalid choice"),
        (["compare"], "error: trainwright hardware compare: the following arguments are required: DEVICE"),
        (["list", "--min-memory", "-1GB"], "error: --min-memory: cannot read a quantity"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, problem):
    assert main(["hardware", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(problem)
    assert len(err.splitlines()) == 1


def test_show_keeps_to_the_cheapest_of_each_provider(capsys):
    assert main(["hardware", "show", "h100"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split()[:3] for line in out.splitlines() if line.strip().startswith("$")]
    assert rows.count(["$6.88", "on-demand", "AWS"]) == 1
    assert "all 27: hardware prices --device h100-sxm" in err and "newer ones: trainwright catalog update" in err


def test_prices_are_listed_with_region_age_and_source(capsys):
    assert main(["hardware", "prices", "--device", "RTX 4090"]) == 0
    out, err = capsys.readouterr()
    # No row has a day, but the first that it can be of, or a doubt: the note says it once, and no column is empty.
    assert out.splitlines()[0].split() == ["device", "cloud", "region", "kind", "$/h", "instance", "age", "source"]
    assert "<= " in out
    assert "Vast.ai" in out and out.count("@a5be538") == 1 and "of an unknown day" in err


def test_every_table_of_prices_says_once_how_old_they_are(capsys):
    for words in ("list", "show t4", "compare t4 l4", "prices --device t4"):
        assert main(["hardware", *words.split()]) == 0
        out, err = capsys.readouterr()
        assert err.count("older than 90 days") + err.count("of an unknown day") >= 1, words
        assert "unknown day" not in out
    # A device without a price has none.
    assert main(["hardware", "show", "mi355x"]) == 0
    assert "unknown day" not in capsys.readouterr().err


def test_prices_for_programs_have_their_age(capsys):
    assert (
        main(["hardware", "prices", "--device", "a10g", "--region", "eu", "--price-kind", "on_demand", "--json"]) == 0
    )
    prices = json.loads(capsys.readouterr().out)["prices"]
    assert prices and all(each["region"].startswith("eu-") and each["kind"] == "on_demand" for each in prices)
    assert main(["hardware", "prices", "--device", "t4", "--cloud", "alibaba"]) == 1
    own = "one of your own: trainwright hardware prices add\n"
    assert capsys.readouterr().out == f"no price is known: --cloud alibaba has none in any list; {own}"
    assert main(["hardware", "prices", "--device", "h20"]) == 1
    assert capsys.readouterr().out == f"no price is known: --device h20 has none in any list; {own}"
    assert main(["hardware", "prices", "--device", "t4", "--cloud", "nebius"]) == 1
    both = "--device t4 with --cloud nebius together, though each alone has some"
    assert capsys.readouterr().out == f"no price is known for {both}; {own}"


def test_a_price_of_ones_own_stands_for_the_same_offer_alone(capsys):
    assert main(["hardware", "prices", "--device", "a10g", "--cloud", "aws", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)["prices"]
    add = ["hardware", "prices", "add", "--device", "a10g", "--cloud", "aws", "--region", "us-east-1"]
    assert main([*add, "--usd", "0.9"]) == 0 and main([*add, "--usd", "0.8"]) == 0
    capsys.readouterr()
    assert main(["hardware", "prices", "--device", "a10g", "--cloud", "aws", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)["prices"]
    mine = [each for each in after if each["source"] == "added by hand"]
    assert [each["usd_per_device_hour"] for each in mine] == [0.8] and mine[0]["days_old"] == 0
    replaced = [each for each in before if (each["region"], each["kind"]) == ("us-east-1", "on_demand")]
    assert replaced and len(after) == len(before) - len(replaced) + 1


def test_what_is_paid_for_an_instance_is_kept_for_each_of_its_devices(capsys):
    assert main(["hardware", "prices", "add", "--device", "p5.48xlarge", "--cloud", "aws", "--usd", "30"]) == 0
    capsys.readouterr()
    assert main(["hardware", "prices", "--device", "h100-sxm", "--cloud", "aws", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["prices"]
    assert [each["usd_per_device_hour"] for each in listed if each["source"] == "added by hand"] == [3.75]


def test_a_price_may_hold_in_a_region_that_no_list_has_and_is_found_there(capsys):
    assert (
        main(["hardware", "prices", "add", "--device", "t4", "--cloud", "aws", "--usd", "0.3", "--region", "mars-1"])
        == 0
    )
    capsys.readouterr()
    assert main(["hardware", "prices", "--region", "mars", "--json"]) == 0
    assert [each["region"] for each in json.loads(capsys.readouterr().out)["prices"]] == ["mars-1"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["add", "--cloud", "aws", "--usd", "1"], "--device: a price needs its device"),
        (["add", "--usd", "1"], "--device: a price needs"),
        (["add", "--device", "t4", "--cloud", "aws"], "--usd: a price needs"),
        (["add", "--device", "t4", "--cloud", "aws", "--usd", "0"], "--usd: a price is above zero"),
        (["add", "--device", "t4", "--cloud", "aws", "--usd", "700"], "--usd: this price would stand in no list"),
        (
            ["add", "--device", "h100-sxm", "--cloud", "aws", "--usd", "0.01"],
            "--usd: this price would stand in no list: less than 1/10",
        ),
        (["add", "--device", "t4", "--cloud", "aws", "--usd", "99"], "more than 10 times the device's median"),
        (["--device", "t4", "--usd", "1"], "--usd: a price to add"),
        (["--cloud", "cloudy"], "--cloud: unknown cloud"),
        (["--region", "eu,mars"], "--region: unknown region (seen 'mars'"),
        (
            ["add", "--device", "t4", "--cloud", "aws", "--usd", "1", "--region", "eu,us"],
            "--region: a price holds in one",
        ),
        (["--price-kind", "cheap"], "--price-kind: unknown value"),
    ],
)
def test_a_bad_price_is_one_line(capsys, arguments, line):
    assert main(["hardware", "prices", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_an_offer_of_no_listed_cloud_is_ones_own(capsys):
    asked = ["plan", "--model", "llama3-8b", "--on", "8xmi300x"]
    assert main(asked) == 0 and "price unknown" in capsys.readouterr().out
    assert main(["hardware", "prices", "add", "--device", "mi300x", "--usd", "2.2"]) == 0
    assert main(["hardware", "prices", "--cloud", "own"]) == 0
    assert "your own offer" in capsys.readouterr().out
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "price unknown" not in out and "$2.20 per device and hour" in out and "your own offer" in out
