from __future__ import annotations

import json

import torch

from trainwright.stages.export import huggingface


def test_end_of_text_is_the_recipes_not_any_special_token(tiny, make_trained, recipe, tmp_path):
    made = tiny.tokenizer()
    made.add_special_tokens(["<|user|>"])
    model = tiny.decoder(vocabulary=321)
    trained = make_trained(model, made)
    huggingface.write(tmp_path, model, recipe=recipe, trained=trained, dtype=torch.float32)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    assert settings == {"bos_token_id": made.token_to_id(tiny.END), "eos_token_id": made.token_to_id(tiny.END)}
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == tiny.END
    assert (tmp_path / "tokenizer.json").read_bytes() == (trained.path / "tokenizer.json").read_bytes()
