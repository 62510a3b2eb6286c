"""Names of bases: folders, and models of a hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.artifact.hub import base
from trainwright.artifact.hub.base import OnHub, base_folder, is_on_hub, is_whole, on_hub, shape_file
from trainwright.core.errors import MissingPackage, RecipeError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://openai-community/gpt2", OnHub(repository="openai-community/gpt2")),
        ("hf://Qwen/Qwen2.5-0.5B@v1", OnHub(repository="Qwen/Qwen2.5-0.5B", revision="v1")),
        ("hf://a/b@refs/pr/1", OnHub(repository="a/b", revision="refs/pr/1")),
    ],
)
def test_a_name_of_the_hub_says_model_and_revision(text, expected):
    assert is_on_hub(text)
    assert on_hub(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["hf://gpt2", "hf://", "hf://a/b/c", "hf://a/b@", "hf://a b/c", "hf://a/b@x y"])
def test_another_form_is_refused_without_the_network(text):
    with pytest.raises(RecipeError, match="not the name of a model on the hub") as error:
        base_folder(text, weights=False)
    assert error.value.expected == "hf://OWNER/NAME or hf://OWNER/NAME@REVISION"


def test_a_path_is_where_it_says(tmp_path):
    assert not is_on_hub(str(tmp_path))
    assert base_folder(str(tmp_path), weights=True) == tmp_path
    assert base_folder("~/models", weights=True) == Path.home() / "models"
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert is_whole(tmp_path)


def test_the_file_of_a_shape_is_ours_or_hugging_faces_or_not_here(tmp_path):
    assert shape_file(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{}")
    assert shape_file(str(tmp_path)) == tmp_path / "config.json"
    (tmp_path / "model.json").write_text("{}")
    assert shape_file(str(tmp_path)) == tmp_path / "model.json"
    assert shape_file("hf://no") is None, "others say what is wrong with the name"


def test_without_the_library_the_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(base, "installed", lambda _package: False)
    with pytest.raises(MissingPackage, match=r"pip install 'trainwright\[train\]'"):
        base_folder("hf://a/b", weights=False)
