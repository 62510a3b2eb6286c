from __future__ import annotations

import pytest
import torch
from transformers import BloomConfig
from transformers.models.bloom.modeling_bloom import BloomAttention

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.model.families import bloom
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["bloom"][1]


class TestBloom(FamilyContract):
    family = "bloom"


def test_joined_rows_are_parted_as_transformers_parts_them(tiny):
    model = tiny.decoder("bloom", **SHAPE)
    theirs = bloom.to_hf(dict(model.named_parameters()), model.spec)
    x = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0))
    name = "transformer.h.1.self_attention.query_key_value"
    joined = torch.nn.functional.linear(x, theirs[f"{name}.weight"], theirs[f"{name}.bias"])
    attention = BloomAttention(BloomConfig(hidden_size=32, n_head=4), layer_idx=0)
    ours = model.blocks[1].attention
    parts = attention._reshape(joined)  # noqa: SLF001  # nothing else of theirs parts them
    for part, layer in zip(parts, (ours.query, ours.key, ours.value), strict=True):
        torch.testing.assert_close(part.transpose(1, 2).flatten(2), layer(x))


SHAPE = {
    "kv_heads": 4,
    "gated": False,
    "norm": "layernorm",
    "positions": "alibi",
    "embedding_norm": True,
    "bias": True,
    "activation": "gelu_tanh",
    "ffn_width": 128,
}


def test_names_of_the_bare_network_in_which_bloom_is_published_are_taken(tiny):
    model = tiny.decoder("bloom", **SHAPE)
    theirs = bloom.to_hf(dict(model.named_parameters()), model.spec)
    bare = {name.removeprefix("transformer."): weight for name, weight in theirs.items()}
    assert "h.0.input_layernorm.weight" in bare
    back = bloom.from_hf(bare, model.spec)
    assert all(torch.equal(back[name], weight) for name, weight in model.named_parameters())


@pytest.mark.parametrize("change", [{"apply_residual_connection_post_layernorm": True}, {"quantization_config": {}}])
def test_what_changes_the_arithmetic_is_refused(change):
    with pytest.raises(RecipeError, match=f"here: this model needs {next(iter(change))}="):
        bloom.from_config(KEYS | change, where="here")


@pytest.mark.parametrize("change", [{"kv_heads": 2}, {"ffn_width": 48}, {"embedding_norm": False}, {"bias": False}])
def test_a_shape_that_is_no_bloom_is_named(tiny, change):
    with pytest.raises(ValueError, match=f"Hugging Face's bloom has {next(iter(change))}="):
        bloom.to_config(tiny.spec("bloom", **SHAPE | {"tied": True} | change))
