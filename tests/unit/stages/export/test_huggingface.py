from __future__ import annotations

import json
from dataclasses import replace

import torch

from trainwright.stages.export.huggingface import HuggingFace


def test_end_of_text_is_the_recipes_not_any_special_token(tiny, make_trained, recipe, tmp_path):
    made = tiny.tokenizer()
    made.add_special_tokens(["<|user|>"])
    model = tiny.decoder(vocabulary=321)
    trained = make_trained(model, made)
    HuggingFace().write(tmp_path, model, recipe=recipe, trained=trained, dtype=torch.float32)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    assert settings == {"bos_token_id": made.token_to_id(tiny.END), "eos_token_id": made.token_to_id(tiny.END)}
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == tiny.END
    assert (tmp_path / "tokenizer.json").read_bytes() == (trained.path / "tokenizer.json").read_bytes()


def test_the_card_of_a_model_with_a_base_says_so(tiny, make_trained, recipe, tmp_path):
    model = tiny.decoder("llama")
    trained = make_trained(model)
    begun = replace(trained, manifest=replace(trained.manifest, inputs={"base": "0" * 64}))
    for artifact, origin in ((trained, "scratch"), (begun, "the weights of another model")):
        HuggingFace().write(tmp_path, model, recipe=recipe, trained=artifact, dtype=torch.float32)
        assert f"trained from {origin} with" in (tmp_path / "README.md").read_text()
