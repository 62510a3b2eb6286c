"""Joined matrices, which biases a shape has, and configurations that do not say it."""

from __future__ import annotations

import pytest
import torch
from transformers import FalconConfig
from transformers.models.falcon.modeling_falcon import FalconAttention

from trainwright.model.families import mpt, phi
from trainwright.model.parts.names import activation_of, has_bias, joined_by_head, parted_by_head


@pytest.mark.parametrize(
    ("kv_heads", "keys"),
    [
        (1, {"multi_query": True}),
        (4, {"multi_query": False}),
        (2, {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ],
)
def test_rows_stand_where_falcon_looks_for_them(tiny, kv_heads, keys):
    spec = tiny.spec("falcon", kv_heads=kv_heads)
    rows = spec.heads * spec.head_size, kv_heads * spec.head_size, kv_heads * spec.head_size
    parts = [torch.randn(count, 32, generator=torch.Generator().manual_seed(count)) for count in rows]
    joined = joined_by_head(*parts, spec)
    for part, again in zip(parts, parted_by_head(joined, spec), strict=True):
        assert torch.equal(part, again)
        assert again.is_contiguous()
    x = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(9))
    attention = FalconAttention(FalconConfig(hidden_size=32, num_attention_heads=4, **keys), layer_idx=0)
    split = attention._split_heads(x @ joined.T)  # noqa: SLF001  # nothing else of theirs parts them
    for theirs, part in zip(split, parts, strict=True):
        ours = (x @ part.T).unflatten(2, (-1, spec.head_size))
        torch.testing.assert_close(theirs, ours.repeat_interleave(theirs.shape[2] // ours.shape[2], dim=2))


def test_a_bias_is_joined_as_its_matrix(tiny):
    spec = tiny.spec("falcon", kv_heads=2)
    parts = [torch.randn(count, 3) for count in (32, 16, 16)]
    joined = joined_by_head(*parts, spec)
    assert torch.equal(joined_by_head(*(part[:, 1] for part in parts), spec), joined[:, 1])


def test_each_part_has_the_bias_that_the_network_has(tiny):
    for changes in (
        {},
        {"bias": False},
        {"qkv_bias": False},
        {"output_bias": False},
        {"norm_bias": False},
        {"norm": "rmsnorm"},
        {"qk_norm": True},
    ):
        model = tiny.decoder("gpt2", **changes)
        names = dict(model.named_parameters())
        modules = {name.removesuffix(".weight") for name in names if name.endswith(".weight")}
        for module in modules:
            assert has_bias(model.spec, module.removeprefix("blocks.0.")) == (f"{module}.bias" in names) or (
                module.startswith(("blocks.1", "blocks.2"))
            ), (changes, module)


def test_a_missing_weight_is_named_as_the_family_calls_it(tiny):
    shape = {"gated": False, "norm": "layernorm", "norm_bias": False, "positions": "alibi", "bias": False}
    model = tiny.decoder("mpt", **shape, kv_heads=4)
    theirs = mpt.to_hf(dict(model.named_parameters()), model.spec)
    del theirs["transformer.blocks.2.attn.Wqkv.weight"]
    with pytest.raises(KeyError, match=r"transformer\.blocks\.2\.attn\.Wqkv\.weight"):
        mpt.from_hf(theirs, model.spec)


def test_classes_take_the_place_of_the_language_head(tiny):
    shape = {"gated": False, "norm": "layernorm", "parallel_residual": True, "norms_per_block": 1, "bias": True}
    model = tiny.decoder("phi", **shape, positions="rope", head_bias=True, classes=3)
    theirs = phi.to_hf(dict(model.named_parameters()), model.spec)
    assert theirs["score.weight"].shape == (3, 32)
    assert not any(name.startswith("lm_head") for name in theirs)
    assert phi.from_hf(theirs, model.spec).keys() == dict(model.named_parameters()).keys()


def test_activations_have_transformers_names(tiny):
    names = [activation_of(tiny.spec(activation=each)) for each in ("silu", "gelu", "gelu_tanh", "relu")]
    assert names == ["silu", "gelu", "gelu_pytorch_tanh", "relu"]
