"""What goes elsewhere is there when its index is; a place that refuses is one line."""

from __future__ import annotations

from uuid import uuid4

import fsspec
import pytest

from trainwright.core.errors import MachineError, RecipeError
from trainwright.runtime.elsewhere import Elsewhere, place_problem


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


def test_a_protocol_is_known_before_anybody_goes_there(monkeypatch) -> None:
    assert [place_problem(place) for place in ("runs", "/runs", "memory://x", "simplecache::memory://x")] == [None] * 4
    problem = place_problem("gcs2://bucket/runs")
    assert isinstance(problem, RecipeError)
    assert problem.where == "train.exec.checkpoint_to"
    assert "an unknown protocol (seen 'gcs2://bucket/runs', expected one that fsspec knows" in str(problem)
    assert str(problem).endswith("did you mean 'gcs'?")

    def absent(protocol: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    problem = place_problem("s3://bucket")
    assert isinstance(problem, MachineError)
    assert str(problem).endswith("Install s3fs to access S3")


@pytest.mark.parametrize("place", ["zip://nowhere.zip", "zip://::memory://x.zip", "tar://x.tar"])
def test_an_archive_is_refused_before_anybody_goes_there(place, tmp_path) -> None:
    problem = place_problem(place)
    assert isinstance(problem, RecipeError)
    assert "train.exec.checkpoint_to: an archive takes no checkpoints" in str(problem)
    with pytest.raises(RecipeError, match="an archive takes no checkpoints"):
        Elsewhere(place, tmp_path)


class ClientError(Exception):
    """What a client raises that knows nothing of OSError."""


def test_whatever_a_client_raises_is_one_line(tmp_path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise ClientError("no credentials")

    elsewhere = Elsewhere("memory://x", tmp_path / "train-1")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "makedirs", refuse)
    with pytest.raises(MachineError, match="cannot reach the place where checkpoints go .*ClientError: no credentials"):
        elsewhere.put(tmp_path, "step-00000001", [])
    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(RecipeError, match="cannot open this place .*no credentials"):
        Elsewhere("memory://x", tmp_path / "train-1")
