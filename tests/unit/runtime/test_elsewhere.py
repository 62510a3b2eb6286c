"""What goes elsewhere is there when its index is; a place that refuses is one line."""

from __future__ import annotations

from uuid import uuid4

import pytest

from trainwright.core.errors import MachineError, RecipeError
from trainwright.runtime.elsewhere import Elsewhere


def test_what_has_no_index_is_not_there(tmp_path) -> None:
    url = f"memory://{uuid4().hex}"
    elsewhere = Elsewhere(url, tmp_path / "train-1")
    (tmp_path / "state.json").write_text("{}")
    elsewhere.put(tmp_path, "step-00000009", ["state.json"])
    assert elsewhere.fetch(tmp_path / "checkpoints", after=-1) is None


def test_an_unknown_protocol_is_refused(tmp_path) -> None:
    with pytest.raises(RecipeError, match="train.exec.checkpoint_to"):
        Elsewhere("nowhere://bucket", tmp_path)


def test_a_place_that_refuses_is_one_line(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    elsewhere = Elsewhere(str(tmp_path / "file"), tmp_path / "train-1")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(MachineError, match="cannot reach the place where checkpoints go") as caught:
        elsewhere.put(tmp_path, "step-00000001", ["state.json"])
    assert "\n" not in str(caught.value)
