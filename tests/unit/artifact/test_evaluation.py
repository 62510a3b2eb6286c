"""An evaluation is read in the form that this version writes, and in no other."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.evaluation import FILE, read_evaluation
from trainwright.core.errors import DataError


def test_a_record_of_this_form_is_read(tmp_path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"format": 2, "splits": {}}))
    assert read_evaluation(tmp_path / FILE) == {"format": 2, "splits": {}}


@pytest.mark.parametrize("record", [{"format": 1}, {"format": 3}, {}])
def test_another_form_is_refused_with_what_mends_it(tmp_path, record) -> None:
    (tmp_path / FILE).write_text(json.dumps(record))
    with pytest.raises(DataError, match="unknown format of evaluation .*expected 2.*trainwright evaluate"):
        read_evaluation(tmp_path / FILE)
