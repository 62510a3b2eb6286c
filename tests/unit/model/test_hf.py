from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from trainwright.artifact.model_folder import INDEX, WEIGHTS, read_shape
from trainwright.core.errors import DataError, RecipeError
from trainwright.model import hf
from trainwright.model.bundle import build, load_bundle

DECODERS = ("llama", "gpt2")
"""One of each form; every family is in families/test_parity.py."""
TOKENS = torch.randint(0, 320, (2, 40), generator=torch.Generator().manual_seed(3))


def logits(model) -> torch.Tensor:
    return model.logits(model(TOKENS))


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_computes_the_same_from_what_we_write(tiny, tmp_path, family, tied):
    model = tiny.decoder(family, tied=tied)
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={"eos_token_id": 0})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(TOKENS).logits, logits(model), atol=1e-4, rtol=0)
    assert (theirs.lm_head.weight is theirs.get_input_embeddings().weight) == tied
    assert theirs.config.eos_token_id == 0


@pytest.mark.parametrize("family", DECODERS)
def test_written_and_read_is_the_same_bit_for_bit(tiny, tmp_path, family):
    model = tiny.decoder(family)
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
    assert read_shape(tmp_path) == model.spec
    weights = hf.read_weights(tmp_path, model.spec)
    assert all(torch.equal(weights[name], parameter) for name, parameter in model.named_parameters())


def theirs_of(family: str, **changes):
    if family == "llama":
        shape = {
            "vocab_size": 320,
            "hidden_size": 32,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        }
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(shape | changes)))
    shape = {"vocab_size": 320, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**(shape | changes)))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}, "head_dim": 16}),
        ("gpt2", {}),
        ("gpt2", {"tie_word_embeddings": False, "n_inner": 72}),
    ],
)
@pytest.mark.parametrize("shard", ["10GB", "20KB"], ids=["one file", "sharded"])
def test_a_model_made_by_transformers_computes_the_same_here(tmp_path, family, changes, shard):
    torch.manual_seed(1)
    theirs = theirs_of(family, **changes).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    assert ((tmp_path / INDEX).exists()) == (shard == "20KB")
    spec = read_shape(tmp_path)
    ours = build(spec, hf.read_weights(tmp_path, spec), where=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(logits(ours), theirs(TOKENS).logits, atol=1e-4, rtol=0)


def test_bfloat16_is_stored_and_read_back_as_float32(tiny, tmp_path):
    model = tiny.decoder()
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.bfloat16, extra={})
    assert {w.dtype for w in load_file(tmp_path / WEIGHTS).values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    tiny.tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert {w.dtype for w in load_bundle(tmp_path)[0].parameters()} == {torch.float32}


def test_what_cannot_be_read_is_named(tiny, tmp_path):
    with pytest.raises(DataError, match=r"no model here .*a directory with model\.json or config\.json"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DataError, match="cannot read JSON .*seen list, expected an object"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="cannot read JSON"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(RecipeError, match="unknown model_type .*'mamba', expected one of llama, gpt2"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mixtral"}')
    with pytest.raises(RecipeError, match="bad model configuration: intermediate_size"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "lama"}')
    with pytest.raises(RecipeError, match="unknown model_type .*did you mean 'llama'"):
        read_shape(tmp_path)
    with pytest.raises(DataError, match=r"no weights here .*model\.safetensors"):
        hf.read_weights(tmp_path, tiny.spec())
    (tmp_path / WEIGHTS).write_bytes(b"\0" * 9)
    with pytest.raises(DataError, match="cannot read the weights"):
        hf.read_weights(tmp_path, tiny.spec())
    hf.write(tmp_path, tiny.spec(), dict(tiny.decoder().named_parameters()), dtype=torch.float32, extra={})
    with pytest.raises(DataError, match=r"a weight is missing \(expected model\.layers\.3\.input_layernorm"):
        hf.read_weights(tmp_path, tiny.spec(layers=4))


@pytest.mark.parametrize("family", DECODERS)
def test_tables_of_older_versions_and_a_stored_copy_of_the_embedding_are_passed_over(tiny, tmp_path, family):
    model = tiny.decoder(family, tied=True)
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
    weights = load_file(tmp_path / WEIGHTS)
    tables = ("model.layers.0.self_attn.rotary_emb.inv_freq", "transformer.h.0.attn.bias", "h.1.attn.masked_bias")
    weights |= {name: torch.ones(1, dtype=torch.uint8) for name in tables}
    weights["lm_head.weight"] = model.embedding.detach().clone()
    save_file(weights, tmp_path / WEIGHTS)
    assert hf.read_weights(tmp_path, model.spec).keys() == dict(model.named_parameters()).keys()
    weights["lm_head.weight"][3, 5] += 1
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(DataError, match=r"a weight has no place in this model \(seen lm_head\.weight"):
        hf.read_weights(tmp_path, model.spec)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("llama", {"attention_bias": True}), ("llama", {"num_hidden_layers": 3}), ("gpt2", {"n_layer": 3})],
    ids=["biases", "llama layer", "gpt2 layer"],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_weight_that_the_configuration_does_not_tell_of_is_named(tmp_path, family, changes, device):
    shape = {"num_hidden_layers": 2} if family == "llama" else {"n_layer": 2}
    theirs_of(family, **(shape | changes)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | shape | {"attention_bias": False}))
    with pytest.raises(DataError, match=r"no place in this model \(seen (.*_proj\.bias|model\.layers\.2\.|.*\.h\.2\.)"):
        hf.read_weights(tmp_path, read_shape(tmp_path), device=device)


def test_weights_that_cannot_be_cut_as_the_family_s_are(tiny, tmp_path):
    model = tiny.decoder("gpt2")
    for size in ((2,), ()):
        hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
        weights = load_file(tmp_path / WEIGHTS)
        save_file(weights | {"transformer.h.0.attn.c_attn.bias": torch.zeros(size)}, tmp_path / WEIGHTS)
        with pytest.raises(DataError, match="the weights do not fit this model"):
            hf.read_weights(tmp_path, model.spec)


@pytest.mark.parametrize("index", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_files_is_named(tiny, tmp_path, index):
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(DataError, match="this index names no files .*weight_map: name to file"):
        hf.read_weights(tmp_path, tiny.spec())


def test_an_index_naming_a_lost_file_is_named(tmp_path):
    torch.manual_seed(0)
    theirs_of("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    lost = sorted(tmp_path.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(DataError, match=f"{lost.name}: the weights are missing"):
        hf.read_weights(tmp_path, read_shape(tmp_path))


def test_a_shape_without_a_form_there_is_refused(tiny, tmp_path):
    model = tiny.decoder("gpt2", kv_heads=2)
    with pytest.raises(RecipeError, match="this shape cannot be exported .*kv_heads = heads"):
        hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
