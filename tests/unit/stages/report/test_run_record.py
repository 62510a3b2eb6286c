from __future__ import annotations

import pytest

from trainwright.core.errors import DataError


def test_reads_what_is_there(record):
    assert record.plan.workload.steps == record.training["steps"]
    assert record.machine.facts.cores == 2
    assert record.curves["train/loss"].steps[-1] == 1000
    assert record.seconds("train") == 54.0


def test_what_is_not_there_is_none(tmp_path, fake):
    record = fake.run(
        tmp_path, fake.recipe(), without=("doctor", "plan", "data", "train", "evaluate", "audit", "serve")
    )
    assert (record.machine, record.plan, record.data, record.training, record.evaluation) == (None,) * 5
    assert (record.audit, record.answer, record.seconds("train"), record.curves) == (None, None, None, {})


@pytest.mark.parametrize("text", ["{", "[1]", "\udcff"])
def test_a_damaged_file_is_named(record, text):
    path = record.artifacts["audit"].path / "audit.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=r"audit\.json"):
        record.read("audit", "audit.json")
