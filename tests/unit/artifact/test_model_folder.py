"""Where the weights of a model are, and what they may be stored in."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.model_folder import check_stored, weight_files
from trainwright.core.errors import DataError


def test_the_files_of_an_index_are_named_once_and_ours_needs_none(tmp_path) -> None:
    with pytest.raises(DataError, match="no weights here"):
        weight_files(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert weight_files(tmp_path) == [tmp_path / "model.safetensors"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"c": "2", "a": "1", "b": "2"}}))
    assert weight_files(tmp_path) == [tmp_path / "1", tmp_path / "2"]
    (tmp_path / "model.json").touch()
    assert weight_files(tmp_path) == [tmp_path / "model.safetensors"], "a trained artefact has one file"


@pytest.mark.parametrize("text", ["{}", '{"weight_map": ["1"]}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_names_is_refused(tmp_path, text) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(DataError, match="this index names no files"):
        weight_files(tmp_path)


def test_weights_are_floating_point_numbers(tmp_path) -> None:
    check_stored("head", "bfloat16", where=tmp_path)
    with pytest.raises(DataError, match="weight head is quantised \\(seen float8_e4m3fn"):
        check_stored("head", "float8_e4m3fn", where=tmp_path)
