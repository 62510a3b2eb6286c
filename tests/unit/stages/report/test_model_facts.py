"""The network in words: every field that matters changes a row, and no row is about what the network cannot have."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import Scales
from trainwright.spec.sections.model import ModelSection
from trainwright.stages.report.model_facts import model_facts

LLAMA = ModelSection(layers=4, width=192, heads=2, ffn_width=512, context_tokens=256).spec(vocabulary=4096)
NORMED = replace(LLAMA, norm="layernorm")
WINDOWED = replace(LLAMA, window_tokens=64)
VISION = replace(LLAMA, kind="vision", image_size=224, patch_size=16, classes=10)
MIXED = replace(LLAMA, experts=Experts(count=8, active=2, ffn_width=64, groups=2, active_groups=1))
LATENT = replace(LLAMA, latent=LatentAttention(query_rank=64, kv_rank=32, rope_size=16, value_size=48), kv_heads=2)
CONVOLVED = replace(VISION, convolutions=Convolutions(depths=(2, 1), widths=(32, 64)))

CHANGES = {
    "family": (LLAMA, "gpt2"),
    "layers": (LLAMA, 5),
    "width": (LLAMA, 256),
    "heads": (LLAMA, 4),
    "kv_heads": (LLAMA, 1),
    "head_size": (LLAMA, 64),
    "ffn_width": (LLAMA, 640),
    "vocabulary": (LLAMA, 5000),
    "context_tokens": (LLAMA, 512),
    "tied": (LLAMA, True),
    "gated": (LLAMA, False),
    "norm": (LLAMA, "layernorm"),
    "norm_epsilon": (LLAMA, 1e-6),
    "positions": (LLAMA, "learned"),
    "rope_theta": (LLAMA, 5e5),
    "bias": (LLAMA, True),
    "activation": (LLAMA, "gelu"),
    "kind": (LLAMA, "encoder"),
    "qkv_bias": (LLAMA, True),
    "output_bias": (LLAMA, True),
    "head_bias": (LLAMA, True),
    "norm_bias": (NORMED, False),
    "parallel_residual": (LLAMA, True),
    "norms_per_block": (LLAMA, 4),
    "post_norm": (LLAMA, True),
    "embedding_norm": (LLAMA, True),
    "first_norm": (LLAMA, False),
    "final_norm": (LLAMA, False),
    "qk_norm": (LLAMA, True),
    "sinks": (LLAMA, True),
    "window_tokens": (LLAMA, 64),
    "window_layers": (WINDOWED, (0, 1)),
    "experts": (LLAMA, MIXED.experts),
    "latent": (LLAMA, LATENT.latent),
    "further_layers": (LLAMA, 1),
    "extra_positions": (LLAMA, 2),
    "segments": (LLAMA, 2),
    "pooler": (LLAMA, True),
    "pooling": (replace(LLAMA, classes=3), "mean"),
    "head_transform": (replace(LLAMA, classes=3), True),
    "classes": (LLAMA, 3),
    "token_classes": (replace(LLAMA, classes=3), True),
    "labels": (replace(LLAMA, classes=2), ("ham", "spam")),
    "language_head": (LLAMA, False),
    "dropout": (LLAMA, Dropout(attention=0.1)),
    "image_size": (VISION, 256),
    "patch_size": (VISION, 32),
    "convolutions": (VISION, CONVOLVED.convolutions),
    "rotary_share": (LLAMA, 0.5),
    "rope_scaling": (LLAMA, RopeScaling(kind="yarn", factor=4.0, original_tokens=64)),
    "window_rope_theta": (WINDOWED, 5e3),
    "norm_offset": (LLAMA, 1.0),
    "scales": (LLAMA, Scales(logits_divisor=8.0)),
    "score_cap": (LLAMA, 50.0),
    "logit_cap": (LLAMA, 30.0),
}
EXPERTS = {
    "count": 16,
    "active": 4,
    "ffn_width": 128,
    "shared_ffn_width": 32,
    "dense_layers": 1,
    "router_bias": True,
    "bias": True,
    "shared_gate": True,
    "groups": 4,
    "active_groups": 2,
    "balance": "bias",
    "dense": (2,),
    "scores": "sigmoid",
    "normalised": False,
    "scale": 2.5,
    "group_best": 1,
    "limit": 7.0,
    "steepness": 1.0,
    "loss_weight": 0.01,
    "z_weight": 0.001,
    "bias_rate": 0.01,
}
BESIDE = {"dense": {"dense_layers": 1}, "steepness": {"limit": 7.0}, "bias_rate": {"balance": "bias"}}
"""What a mixture has where a field of its experts means something."""
CONVOLUTIONS = {
    "depths": (1, 1),
    "widths": (32, 128),
    "stem_width": 32,
    "bottleneck": False,
    "stride_first": True,
    "halves_first": True,
}
LATENTS = {"query_rank": None, "kv_rank": 16, "rope_size": 8, "value_size": 32, "interleaved": False}


@pytest.mark.parametrize("name", [field.name for field in fields(ModelSpec)])
def test_every_field_is_told(name):
    model, value = CHANGES[name]
    assert model_facts(model, None) != model_facts(replace(model, **{name: value}), None)


def test_rates_of_dropout_are_told_where_they_are_not_zero():
    dropped = replace(LLAMA, dropout=Dropout(residual=0.1, attention=0.05))
    told = dict(model_facts(dropped, None))["dropout in training"]
    assert told == "0.1 of sub-layers' outputs, 0.05 of attention's weights"


@pytest.mark.parametrize("name", [field.name for field in fields(Experts)])
def test_every_field_of_a_mixture_is_told(name):
    experts = replace(MIXED.experts, **BESIDE.get(name, {}))
    some, others = (replace(MIXED, experts=each) for each in (experts, replace(experts, **{name: EXPERTS[name]})))
    assert model_facts(some, None) != model_facts(others, None)


@pytest.mark.parametrize("name", ["embedding", "residual", "attention", "logits_divisor"])
def test_every_scale_is_told(name):
    assert model_facts(LLAMA, None) != model_facts(replace(LLAMA, scales=Scales(**{name: 0.5})), None)


@pytest.mark.parametrize("name", [field.name for field in fields(LatentAttention)])
def test_every_field_of_latent_attention_is_told(name):
    changed = replace(LATENT, latent=replace(LATENT.latent, **{name: LATENTS[name]}))
    assert model_facts(LATENT, None) != model_facts(changed, None)


@pytest.mark.parametrize("name", [field.name for field in fields(Convolutions)])
def test_every_field_of_convolutions_is_told(name):
    changed = replace(CONVOLVED, convolutions=replace(CONVOLVED.convolutions, **{name: CONVOLUTIONS[name]}))
    assert model_facts(CONVOLVED, None) != model_facts(changed, None)


def test_a_network_of_convolutions_is_told_without_attention():
    assert [name for name, _ in model_facts(CONVOLVED, 5)] == [
        "family",
        "parameters",
        "stem",
        "stages",
        "block",
        "image halved",
        "normalisation",
        "image",
        "classes",
    ]


def test_a_small_llama_has_eleven_rows_and_none_without_meaning():
    assert model_facts(LLAMA, 3_344_064) == (
        ("family", "llama, decoder"),
        ("parameters", "3,344,064"),
        ("layers", "4"),
        ("width", "192"),
        ("attention", "2 heads of 96 elements"),
        ("positions", "rotary, base 10,000"),
        ("feed-forward", "width 512, gated, SiLU"),
        ("normalisation", "RMSNorm, 2 per block, epsilon 1e-05"),
        ("biases", "none"),
        ("vocabulary", "4,096, an output head of its own"),
        ("context", "256 tokens"),
    )


@pytest.mark.parametrize("model", [LLAMA, NORMED, WINDOWED, MIXED, LATENT])
def test_a_text_model_has_no_patches_and_nothing_is_unknown(model):
    text = str(model_facts(model, None))
    assert "patch" not in text
    assert "unknown" not in text and "None" not in text
