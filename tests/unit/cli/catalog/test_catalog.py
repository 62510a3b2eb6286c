from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from trainwright.cli.main import main
from trainwright.hardware.prices import feed

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
AWS = HEADER + "p5.48xlarge,H100,8,192,2048,16.0,us-east-1,,4.0\np5.48xlarge,H100,8,192,2048,700.0,mars,,\n"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def aws(tmp_path):
    path = tmp_path / "aws.csv"
    path.write_text(AWS)
    return str(path)


def test_show_names_the_snapshot_and_what_is_unknown(capsys):
    assert main(["catalog", "show"]) == 0
    out, err = capsys.readouterr()
    row = next(line for line in out.splitlines() if line.startswith("published"))
    assert row.split()[1] == "2026-11-29"
    assert "today" not in row and int(row.split()[-3]) > 50  # without a date
    assert row.endswith("packaged")
    assert "no price known: Alibaba Cloud, Cudo" in out
    assert "host not included" in out
    assert re.search(r"no other: [1-9]\d* spot prices near their floor", out)
    assert "trainwright catalog update" in err


def test_update_keeps_the_date_counts_refusals_and_leaves_the_package_alone(capsys, aws, data):
    assert main(["catalog", "update", "--from", aws]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["AWS", "2", "1", "1", "placeholder"]
    assert str(data) in out
    assert main(["catalog", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in shown["lists"]] == ["published", "aws"]
    assert shown["lists"][1]["recorded"] == datetime.now(UTC).date().isoformat()
    assert shown["offers"]["AWS"] > 2  # of devices that the fetched list does not have
    assert main(["hardware", "show", "h100", "--json"]) == 0
    offers = json.loads(capsys.readouterr().out)["offers"]
    assert {offer["usd_per_device_hour"] for offer in offers if offer["provider"] == "AWS"} == {2.0, 0.5}


def test_without_a_network_the_packaged_prices_stay_and_one_line_says_so(capsys, monkeypatch):
    # A port that nothing listens on.
    monkeypatch.setattr(feed, "PUBLIC", "http://127.0.0.1:1")
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    assert main(["catalog", "update"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "no prices were fetched" in err
    assert "those of 2026-11-29 stay in use" in err


def test_one_list_of_several_may_fail(capsys, aws, tmp_path):
    (tmp_path / "lambda.csv").write_text("<html>")
    assert main(["catalog", "update", "--from", aws, "--from", str(tmp_path / "lambda.csv")]) == 0
    out, err = capsys.readouterr()
    assert "AWS" in out
    assert "not updated: Lambda: " in err
    assert main(["catalog", "update", "--from", aws, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["updated"][0]["refused"] == {"placeholder": 1}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--cloud", "azur"], "error: --cloud: unknown cloud (seen 'azur'"),
        (["--cloud", "huawei"], "error: --cloud: in no public price list (seen Huawei Cloud"),
        (["--from", "nowhere"], "error: --from: no such price list (seen 'nowhere'"),
        (["--from", "aws/vms.csv"], "error: --from: no such price list (seen 'aws/vms.csv'"),
        (["--from", ""], "error: --from: no such price list (seen ''"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, problem):
    assert main(["catalog", "update", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(problem)


def test_a_damaged_list_is_counted_and_its_age_is_unknown(capsys, data):
    path = data / "trainwright" / "prices" / "aws.csv"
    path.parent.mkdir(parents=True)
    rows = ("t4,AWS,on_demand,\xb9,soon", "t4,AWS,on_demand,1.0,soon", "half a row", "", "")
    path.write_text("\n".join(("device,provider,kind,usd_per_device_hour,as_of", *rows)))
    assert main(["catalog", "show"]) == 0
    out = capsys.readouterr().out
    assert next(line for line in out.splitlines() if line.startswith("aws")).split()[1:3] == ["soon", "unknown"]
    assert "1 a price that is no number" in out


def test_models_are_listed_with_their_shape(capsys):
    assert main(["catalog", "models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 100
    row = next(line for line in lines if line.startswith("mixtral-8x7b ")).split()
    assert row[1:4] == ["46.7B", "12.88B", "32"]
    assert main(["catalog", "models", "vit", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["models"]
    assert {each["name"] for each in entries} >= {"vit-b-16", "vit-l-16"} and all(
        "vit" in each["name"] for each in entries
    )
    assert all(each["source"] and each["recorded"] for each in entries)
    assert main(["catalog", "models", "nonsense"]) == 2
    assert "no model by such a name" in capsys.readouterr().err


def test_software_is_listed_with_how_far_it_is_off(capsys):
    assert main(["catalog", "stacks"]) == 0
    out = capsys.readouterr().out
    assert {"default", "torchtitan", "megatron-core", "trainwright"} <= {line.split()[0] for line in out.splitlines()}
    assert main(["catalog", "stacks", "--json"]) == 0
    entries = {each["name"]: each for each in json.loads(capsys.readouterr().out)["stacks"]}
    assert entries["torchtitan"]["fit"]["time"]["rows"] > 0 and entries["torchtitan"]["time_spread"] > 0
