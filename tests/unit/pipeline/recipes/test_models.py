"""Which model an answer names."""

from __future__ import annotations

import json

import pytest

from fixtures.hub import ask, serving
from trainwright.core.errors import DataError, TrainwrightError
from trainwright.hardware.catalogue.models import published_model
from trainwright.pipeline.recipes.kinds import KINDS
from trainwright.pipeline.recipes.models import chosen_model, expected, shortest
from trainwright.spec.sections.model import ModelSection

CONFIG = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2", "bert-base", "qwen3-0.6b", "gemma2-9b", "mixtral-8x7b"])
def test_the_shortest_keys_still_ask_for_the_shape(name) -> None:
    shape = published_model(name).spec
    keys = shortest(shape, name)
    built = ModelSection.model_validate(keys).spec(vocabulary=shape.vocabulary)
    assert not built.body_differences(shape)
    assert "norm_epsilon" not in keys or built.norm_epsilon != 1e-5


def test_a_name_stands_for_weights_that_are_to_come_or_for_a_shape(folder) -> None:
    tuned, anew = (
        chosen_model("meta-llama/Meta-Llama-3-8B", KINDS["chat-lora"]),
        chosen_model("gpt2", KINDS["pretrain"]),
    )
    assert (tuned.keys["init_from"], tuned.missing, tuned.parameters) == ("llama3-8b", True, 8_030_261_248)
    assert (anew.folder, "init_from" in anew.keys, anew.parameters) == (None, False, 124_439_808)


def test_a_folder_says_all_itself(folder) -> None:
    assert chosen_model("mine", KINDS["chat"]).keys == {"init_from": "mine"}
    (folder / "mine" / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    model = chosen_model(str(folder / "mine"), KINDS["chat"])
    assert model.has_template and not model.missing and model.shape.layers == 2


def test_a_model_on_the_hub_says_all_itself_and_keeps_its_name(folder, tmp_path, monkeypatch) -> None:
    (tmp_path / "some").mkdir()
    (folder / "mine").rename(tmp_path / "some" / "model")
    with serving(tmp_path) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        model = chosen_model("hf://some/model", KINDS["chat"])
        with pytest.raises(
            DataError, match=r"model: the hub has no such model, or a private one \(seen hf://some/no\)"
        ):
            chosen_model("hf://some/no", KINDS["chat"])
    assert model.keys == {"init_from": "hf://some/model"}
    assert model.shape.layers == 2 and not model.missing


def test_small_is_a_network_of_the_kinds_own() -> None:
    assert chosen_model("small", KINDS["classify"]).keys["family"] == "bert"
    assert "small" in expected(KINDS["classify"]) and "small" not in expected(KINDS["chat"])


@pytest.mark.parametrize(
    ("answer", "kind", "line"),
    [
        ("", "chat", "model: no model is named"),
        ("small", "chat", "model: unknown model"),
        ("llama3-8c", "chat", "did you mean 'llama3-8b'"),
        ("./none", "chat", "model: no such folder"),
        (".", "chat", "model: no model here"),
        ("bert-base", "chat", "model: a network of another kind learns this task (seen bert-base: encoder"),
        ("resnet-50", "chat", "can be planned, not trained"),
        ("mine", "pretrain", "trainwright init continue goes on from its weights"),
        ("mine", "classify-images", "another kind learns this task (seen mine: decoder"),
        ("deepseek-v3", "pretrain", "no recipe says this model's shape"),
    ],
)
def test_what_is_no_answer_is_one_line(folder, answer, kind, line) -> None:
    with pytest.raises(TrainwrightError) as caught:
        chosen_model(answer, KINDS[kind])
    assert line in str(caught.value) and "\n" not in str(caught.value)
