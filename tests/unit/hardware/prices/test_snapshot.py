import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, MachineError
from trainwright.hardware.prices import snapshot
from trainwright.hardware.prices.price_list import price_list
from trainwright.spec.device import Price

ROW = {
    "device": "t4",
    "provider": "AWS",
    "instance": "i",
    "kind": "on_demand",
    "usd_per_device_hour": "0.5",
    "region": "r",
    "source": "s",
    "as_of": "2026-01-02",
    "note": "",
    "date": "",
}


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def test_what_is_written_is_read_with_its_date(data):
    path = snapshot.write("aws", [ROW, ROW | {"as_of": "2026-01-01"}])
    assert path == data / "trainwright" / "prices" / "aws.csv"
    (found,) = snapshot.fetched()
    assert (found.name, found.recorded, found.path) == ("aws", "2026-01-02", path)
    assert found.rows[0] == ROW
    assert not list(path.parent.glob("*.partial"))


def test_nothing_fetched_is_no_error():
    assert snapshot.fetched() == ()


def test_the_folder_follows_xdg(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert snapshot.folder() == Path.home() / ".local" / "share" / "trainwright" / "prices"


def test_the_packaged_list_has_a_date_and_is_never_the_users():
    (found,) = snapshot.packaged()
    assert found.recorded == "2026-11-29"
    assert found.path is None
    assert len(found.rows) > 50
    # Most rows name a commit of another repository; the list was collected on a day that says nothing of theirs.
    assert found.undated > 50 and "" < found.oldest < found.recorded


def test_a_folder_that_cannot_be_written_is_one_line(data):
    (data / "trainwright").write_text("a file in the way")
    with pytest.raises(MachineError, match="cannot write a price list.*XDG_DATA_HOME"):
        snapshot.write("aws", [ROW])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_list_that_cannot_be_read_is_one_line():
    snapshot.write("aws", [ROW]).chmod(0)
    with pytest.raises(MachineError, match="cannot read a price list"):
        snapshot.fetched()


def _own(data, content):
    path = data / "trainwright" / "prices" / "own.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


HEAD = b"device,provider,kind,usd_per_device_hour,region\n"
RIGHT = HEAD + b"t4,AWS,on_demand,0.5,r\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (RIGHT.replace(b",", b";"), 1),
        (RIGHT.replace(b"usd_per_device_hour", b"usd"), 1),
        (RIGHT.replace(b"region", b"regoin"), 1),
        (RIGHT.replace(b"region", b"kind"), 1),
        (b"\0\1\2", 1),
        (b"", 1),
        (RIGHT + "l4,AWS,on_demand,0.7,Zürich\n".encode("latin-1"), 3),
        (RIGHT + b"l4,AWS,on_demand,0.7,r,more\n", 3),
        (RIGHT + b"l4,AWS,on_demand,abc,r\n", 3),
        (RIGHT + b"l5,AWS,on_demand,0.7,r\n", 3),
        (RIGHT + b'l4,AWS,on_demand,0.7,"r\n', 3),
        (RIGHT + b"l4,AWS,on_demand,0.7,r\nNVIDIA T4,aws,on_demand,0.6,r\n", 4),
        (RIGHT.replace(b"\n", b"\r") + b"l5,AWS,on_demand,0.7,r\r", 3),
        (RIGHT.replace(b"\n", b"\r") + "l4,AWS,on_demand,0.7,Zürich\r".encode("latin-1"), 3),
    ],
)
def test_a_list_of_ones_own_that_is_none_is_refused_and_stays_as_it_is(data, content, line):
    path = _own(data, content)
    with pytest.raises(DataError, match=f"own.csv:{line}: "):
        snapshot.fetched()
    with pytest.raises(DataError, match=f"own.csv:{line}: "):
        snapshot.add(ROW)
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["a link to a device", "a pipe", "a link to nothing"])
def test_a_list_that_is_no_file_is_not_read(data, kind):
    path = _own(data, b"")
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "a link to a device" else "nothing")
    with pytest.raises(
        MachineError, match=r"own.csv: cannot read a price list \(seen (not a regular file|No such file)"
    ):
        price_list("t4")


def test_a_price_of_ones_own_is_never_left_out_silently(data):
    path = _own(data, RIGHT + b"l4,AWS,on_demand,1e9,r\n")
    with pytest.raises(
        DataError, match=r"own.csv:3: a price that cannot be believed: more than 10 times .*\$1,000,000,0"
    ):
        price_list("l4")
    mine = [each for each in price_list("t4").offers("t4", providers=["aws"]) if each.region == "r"]
    assert [(each.usd_per_device_hour, each.source) for each in mine] == [(0.5, f"{path}:2")]


def test_what_a_spreadsheet_saves_keeps_its_prices(data):
    path = _own(data, b"\xef\xbb\xbf" + RIGHT.replace(b"\n", b"\r\n").replace(b"AWS", b"aws"))
    snapshot.add(ROW | {"device": "l4"})
    (found,) = snapshot.fetched()
    assert found.path == path
    assert [(row["device"], row["provider"], row["region"]) for row in found.rows] == [
        ("t4", "AWS", "r"),
        ("l4", "AWS", "r"),
    ]


def test_processes_that_add_at_once_lose_no_price(data):
    imports = "import sys; from trainwright.hardware.prices import snapshot"
    code = f"{imports}; snapshot.add({ROW} | {{'region': sys.argv[1]}})"
    adding = [subprocess.Popen([sys.executable, "-c", code, f"r{each}"]) for each in range(8)]
    assert [process.wait(timeout=120) for process in adding] == [0] * 8
    (found,) = snapshot.fetched()
    assert {row["region"] for row in found.rows} == {f"r{each}" for each in range(8)}


@pytest.mark.parametrize(
    ("source", "day", "since"),
    [
        ("skypilot-org/skypilot-catalog:catalogs/v9/aws/vms.csv", "", "2026-07-09"),
        ("skypilot-org/skypilot-catalog:catalogs/v9/aws/vms.csv", "2026-10-01", ""),
        ("skypilot-org/skypilot-catalog:catalogs/v8/aws/vms.csv", "", ""),
    ],
)
def test_a_price_without_a_day_is_not_older_than_its_schema(source, day, since):
    one = Price(
        usd_per_device_hour=1.0, kind="spot", provider="AWS", region="", as_of="2c3d7ea", source=source, date=day
    )
    assert snapshot.not_before(one) == since
