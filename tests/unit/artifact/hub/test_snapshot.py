"""What is downloaded from a hub, and what is said where it gives nothing; the hub is a server on this machine."""

from __future__ import annotations

import json
import socket

import pytest
from huggingface_hub import hf_hub_download

from fixtures.hub import COMMIT, ask, serving
from trainwright.artifact.hub.base import base_folder, is_whole
from trainwright.core.errors import DataError, MachineError, RecipeError

MODEL = "hf://some/model"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with a model in two files of weights, one more that is none of them, and an empty cache."""
    folder = tmp_path / "served" / "some" / "model"
    folder.mkdir(parents=True)
    names = ["model-1.safetensors", "model-2.safetensors"]
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text(json.dumps({"file": name}))
    for name in (*names, "consolidated.safetensors", "pytorch_model.bin"):
        (folder / name).write_bytes(name.encode())
    with serving(tmp_path / "served") as server:
        ask(monkeypatch, server.address, tmp_path / "cache")
        yield server


def _unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_plan_loads_no_weights_and_training_those_of_the_index_once(hub, monkeypatch, tmp_path, capfd):
    folder = base_folder(MODEL, weights=False)
    assert capfd.readouterr() == ("", "")
    assert sorted(hub.asked) == ["config.json", "model.safetensors.index.json", "tokenizer.json"]
    assert not is_whole(folder)
    hub.asked.clear()
    assert base_folder(MODEL, weights=True) == folder
    assert sorted(hub.asked) == ["model-1.safetensors", "model-2.safetensors"]
    assert (folder / "model-2.safetensors").read_bytes() == b"model-2.safetensors"
    ask(monkeypatch, f"http://127.0.0.1:{_unused_port()}", tmp_path / "cache")
    assert base_folder(MODEL, weights=True) == folder, "from the cache, without a hub"
    assert base_folder(f"{MODEL}@{COMMIT}", weights=True) == folder


def test_what_other_software_left_in_the_cache_is_not_taken_for_the_model(hub):
    hf_hub_download("some/model", "config.json")
    folder = base_folder(MODEL, weights=False)
    assert (folder / "tokenizer.json").is_file()
    (folder / "model.safetensors.index.json").unlink()
    assert is_whole(base_folder(MODEL, weights=True))


@pytest.mark.parametrize("name", ["hf://some/mo--del", "hf://-some/model", "hf://some/model.git"])
def test_a_name_that_no_model_can_have_is_one_line(hub, name):
    with pytest.raises(RecipeError, match="not the name of a model on the hub") as error:
        base_folder(name, weights=False)
    assert name in str(error.value)
    assert not hub.asked


def test_without_a_hub_the_line_says_how_to_bring_the_files(hub, monkeypatch, tmp_path):
    ask(monkeypatch, f"http://127.0.0.1:{_unused_port()}", tmp_path / "cache")
    with pytest.raises(MachineError, match="the hub cannot be reached, and its cache here lacks this model") as error:
        base_folder(f"{MODEL}@v2", weights=False)
    assert error.value.where == f"{MODEL}@v2"
    assert "hf download some/model --revision v2 --local-dir FOLDER" in str(error.value)


def test_weights_that_are_missing_are_told_without_a_hub_too(hub, monkeypatch, tmp_path):
    base_folder(MODEL, weights=False)
    ask(monkeypatch, f"http://127.0.0.1:{_unused_port()}", tmp_path / "cache")
    monkeypatch.setattr("time.sleep", lambda _seconds: None)  # the library tries some times more
    with pytest.raises(MachineError, match="the hub cannot be reached"):
        base_folder(MODEL, weights=True)


@pytest.mark.parametrize(
    ("name", "refusal", "what"),
    [
        ("hf://some/other", "", "the hub has no such model, or a private one"),
        (f"{MODEL}@v9", "", "this model has no such revision"),
        (MODEL, "GatedRepo", "the hub gives this model to those alone who accepted its terms"),
    ],
)
def test_what_the_hub_does_not_give_is_one_line(hub, name, refusal, what):
    hub.refusal = refusal
    with pytest.raises(DataError, match=what) as error:
        base_folder(name, weights=False)
    assert str(error.value.where) == name
    assert "\n" not in str(error.value)


def test_a_model_without_safetensors_is_refused(hub, tmp_path):
    for path in (tmp_path / "served" / "some" / "model").glob("*.safetensors*"):
        path.unlink()
    with pytest.raises(DataError, match="no weights in safetensors here"):
        base_folder(MODEL, weights=True)
