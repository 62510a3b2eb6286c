import os
from pathlib import Path

import pytest

from trainwright.core.errors import MachineError
from trainwright.hardware.prices import snapshot

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
    assert found.recorded == "2026-11-23"
    assert found.path is None
    assert len(found.rows) > 50


def test_a_folder_that_cannot_be_written_is_one_line(data):
    (data / "trainwright").write_text("a file in the way")
    with pytest.raises(MachineError, match="cannot write a price list.*XDG_DATA_HOME"):
        snapshot.write("aws", [ROW])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_list_that_cannot_be_read_is_one_line():
    snapshot.write("aws", [ROW]).chmod(0)
    with pytest.raises(MachineError, match="cannot read a price list"):
        snapshot.fetched()
