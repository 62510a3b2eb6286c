import json

import pytest

from trainwright.core.errors import DataError
from trainwright.hardware.machine.record import machine_text, read_machine
from trainwright.testing.machine import fake_machine


def test_a_record_comes_back_as_it_went(tmp_path):
    path = tmp_path / "machine.json"
    path.write_bytes(machine_text(fake_machine()))
    assert read_machine(path) == fake_machine()


def test_what_cannot_be_read_says_what_to_do(tmp_path):
    path = tmp_path / "machine.json"
    with pytest.raises(DataError, match=r"no machine record here; run: trainwright doctor"):
        read_machine(path)
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_machine(path)
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(DataError, match="unknown format"):
        read_machine(path)
    record = json.loads(machine_text(fake_machine()))
    del record["facts"]["cores"]
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match="cores"):
        read_machine(path)
