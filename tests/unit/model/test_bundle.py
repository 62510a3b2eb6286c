from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainwright.core.errors import DataError, RecipeError
from trainwright.model import hf
from trainwright.model.bundle import build, load_bundle


@pytest.fixture
def trained(tiny, tmp_path):
    return tiny.write_trained(tmp_path / "train", tiny.decoder(), tiny.tokenizer())


def test_trained_artefact_comes_back(tiny, trained):
    model, tokenizer = load_bundle(trained)
    tokens = torch.arange(20)[None]
    assert torch.equal(model(tokens), tiny.decoder()(tokens))
    assert tokenizer.encode("for index").ids == tiny.tokenizer().encode("for index").ids
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_dtype_is_that_of_weights_and_arithmetic(trained):
    model, _ = load_bundle(trained, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model(torch.arange(4)[None]).dtype == torch.bfloat16


def test_huggingface_directory(tiny, tmp_path):
    model = tiny.decoder("gpt2")
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
    tiny.tokenizer().save(str(tmp_path / "tokenizer.json"))
    loaded, _ = load_bundle(tmp_path)
    assert loaded.spec == model.spec
    assert torch.equal(loaded(torch.arange(9)[None]), model(torch.arange(9)[None]))


def test_padding_and_truncation_of_a_tokenizer_are_switched_off(tiny, trained):
    made = tiny.tokenizer()
    made.enable_truncation(4)
    made.enable_padding(length=4)
    made.save(str(trained / "tokenizer.json"))
    _, tokenizer = load_bundle(trained)
    assert len(tokenizer.encode("x").ids) == 1
    assert len(tokenizer.encode("for index, value in enumerate(values)").ids) > 4


def test_what_is_missing_or_damaged_is_named(tiny, trained, tmp_path):
    with pytest.raises(DataError, match=r"no model here .*model\.json or config\.json"):
        load_bundle(tmp_path / "nowhere")
    weights = load_file(trained / "model.safetensors")
    for broken, message in [
        ({k: v for k, v in weights.items() if k != "norm.weight"}, "a weight is missing .*norm.weight"),
        (weights | {"extra": torch.ones(1)}, "a weight has no place in this model .*extra"),
        (weights | {"norm.weight": torch.ones(7)}, r"norm.weight has another shape \(seen \(7,\), expected \(32,\)"),
    ]:
        save_file(broken, trained / "model.safetensors")
        with pytest.raises(DataError, match=message):
            load_bundle(trained)
    (trained / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(DataError, match="cannot read the weights"):
        load_bundle(trained)
    (trained / "model.safetensors").unlink()
    with pytest.raises(DataError, match="the weights are missing"):
        load_bundle(trained)
    (trained / "model.json").write_text("{")
    with pytest.raises(DataError, match="cannot read JSON"):
        load_bundle(trained)


def test_tokenizer_must_be_there_readable_and_fit(tiny, trained):
    tiny.tokenizer().save(str(trained / "tokenizer.json"))
    record = json.loads((trained / "tokenizer.json").read_text())
    larger = tiny.tokenizer(321)
    if larger.get_vocab_size() > 320:
        larger.save(str(trained / "tokenizer.json"))
        with pytest.raises(DataError, match="more tokens than the model .*321 tokens, expected 320 at most"):
            load_bundle(trained)
    (trained / "tokenizer.json").write_text(json.dumps(record | {"model": {"type": "Nonsense"}}))
    with pytest.raises(DataError, match="cannot read the tokenizer"):
        load_bundle(trained)
    (trained / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        load_bundle(trained)
    (trained / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="a file of this model is missing"):
        load_bundle(trained)


def test_unsupported_configuration_is_one_clear_line(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "vocab_size": 320,
        "quantization_config": {"bits": 4},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecipeError) as caught:
        load_bundle(tmp_path)
    message = "this model needs quantization_config={'bits': 4}, which is not supported (expected None)"
    assert str(caught.value).endswith(message)


def test_impossible_shapes_are_data_errors(tiny):
    with pytest.raises(DataError, match=r"no possible model .*heads \(4\) must be a multiple of kv_heads \(3\)"):
        build(tiny.spec(kv_heads=3), {}, where="here")
