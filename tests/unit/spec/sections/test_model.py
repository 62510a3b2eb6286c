"""The network's section: family defaults against Hugging Face's own, sizes that cannot be."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainwright.core.errors import RecipeError
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import Scales
from trainwright.spec.sections.model import ModelSection, keys_of

SIZES = {"layers": 2, "width": 64, "heads": 2}


def test_gpt2_defaults_are_those_of_gpt2() -> None:
    from transformers import GPT2Config

    theirs = GPT2Config()
    section = ModelSection(family="gpt2", layers=12, width=768, heads=12, context_tokens=1024)
    ours = section.spec(vocabulary=theirs.vocab_size)
    assert (ours.ffn_width, ours.tied, ours.bias, ours.norm) == (4 * theirs.n_embd, True, True, "layernorm")
    assert ours.norm_epsilon == theirs.layer_norm_epsilon


def test_rates_of_dropout_are_those_of_gpt2_and_none_by_default() -> None:
    section = {"family": "gpt2", "layers": 2, "width": 64, "heads": 4}
    assert not ModelSection(**section).spec(vocabulary=5).dropout
    rates = {"residual": 0.1, "attention": 0.3}
    spec = ModelSection(**section, dropout=rates).spec(vocabulary=5)
    assert spec.dropout == Dropout(residual=0.1, embedding=0.0, attention=0.3)
    assert not spec.body_differences(ModelSection(**section).spec(vocabulary=5)), "weights fit whatever is dropped"
    for rate in (-0.1, 1.0):
        with pytest.raises(ValidationError, match=r"dropout\.residual"):
            ModelSection(**section, dropout={"residual": rate})


def test_llama_defaults() -> None:
    spec = ModelSection(layers=32, width=4096, heads=32).spec(vocabulary=32000)
    assert spec.ffn_width == 10944, "8/3 of the width, up to a multiple of 64 (Llama-7B rounds to 256: 11,008)"
    assert (spec.gated, spec.norm, spec.positions, spec.bias, spec.tied) == (True, "rmsnorm", "rope", False, False)


@pytest.mark.parametrize(
    ("sizes", "part"),
    [
        ({"layers": 2, "width": 65, "heads": 4}, "nearest that does: heads=5"),
        ({"layers": 2, "width": 10**15 + 37, "heads": 1000}, "nearest that does: heads="),
        ({"layers": 2, "width": 10, "heads": 99}, "nearest that does: heads=10"),
        ({"layers": 2, "width": 64, "heads": 4, "kv_heads": 3}, "multiple of kv_heads"),
    ],
)
def test_impossible_sizes_say_why(sizes, part) -> None:
    with pytest.raises(ValidationError, match=part):
        ModelSection.model_validate(sizes)


@given(width=st.integers(1, 300), heads=st.integers(1, 400))
def test_the_number_of_heads_that_is_proposed_is_the_nearest(width, heads) -> None:
    if width % heads:
        with pytest.raises(ValidationError) as caught:
            ModelSection(family="gpt2", layers=1, width=width, heads=heads)
        proposed = int(re.search(r"heads=(\d+)", str(caught.value))[1])
        divisors = [number for number in range(1, width + 1) if width % number == 0]
        assert proposed == min(divisors, key=lambda number: abs(number - heads))


VIT = {"family": "vit", "layers": 2, "width": 64, "heads": 4, "image_size": 48, "patch_size": 16}


def test_an_image_decides_how_many_tokens_there_are() -> None:
    section = ModelSection(**VIT)
    spec = replace(section.spec(vocabulary=300), classes=3)
    assert (section.context_tokens, spec.context_tokens, spec.vocabulary, spec.kind) == (10, 10, 0, "vision")
    assert spec.problems() == ()
    assert ModelSection(**section.model_dump()) == section, "what is written out can be read"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": None}, "vit needs patch_size"),
        ({"image_size": 50}, r"image_size \(50\) must be a multiple of patch_size \(16\)"),
        ({"context_tokens": 12}, r"context_tokens \(12\) is not the 10 tokens of an image: leave it out"),
        ({"family": "gpt2"}, "image_size is for a network of images, which gpt2 is not"),
    ],
)
def test_sizes_of_images_that_cannot_be_are_named(change, message) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSection(**(VIT | change))


def test_scaled_positions_windows_and_scales_are_keys() -> None:
    rope = {"kind": "llama3", "factor": 8, "original_tokens": 8192, "slow_turns": 1, "fast_turns": 4}
    keys = SIZES | {"rope_scaling": rope, "window_tokens": 64, "scales": {"residual": 0.5}}
    spec = ModelSection.model_validate(keys).spec(vocabulary=300)
    assert spec.rope_scaling == RopeScaling(
        kind="llama3", factor=8.0, original_tokens=8192, slow_turns=1.0, fast_turns=4.0
    )
    assert (spec.window_tokens, spec.windowed_layers, spec.scales) == (64, 2, Scales(residual=0.5))
    gemma = ModelSection.model_validate(SIZES | {"family": "gemma2", "window_tokens": 64, "scales": {"attention": 1}})
    spec = gemma.spec(vocabulary=300)
    assert (spec.window_tokens, spec.window_layers) == (64, (0,))
    assert spec.scales == Scales(embedding=8.0, attention=1.0)
    experts = {"experts": {"count": 4, "active": 2, "ffn_width": 32}}
    oss = ModelSection.model_validate(SIZES | experts | {"family": "gpt_oss", "window_tokens": 64})
    spec = oss.spec(vocabulary=300)
    assert (spec.window_tokens, spec.window_layers) == (64, (0,))


def test_a_base_with_scaled_positions_says_what_to_write() -> None:
    plain = ModelSection.model_validate(SIZES | {"init_from": "base"})
    base = replace(plain.spec(vocabulary=300), rope_scaling=RopeScaling(kind="linear", factor=4.0))
    (problem,) = plain.differences(plain.spec(vocabulary=300), base)
    assert "the base has rope_scaling {kind: linear, factor: 4.0}" in str(problem)
    assert "write model.rope_scaling={kind: linear, factor: 4.0}" in str(problem)
    written = ModelSection.model_validate(
        SIZES | {"init_from": "base", "rope_scaling": {"kind": "linear", "factor": 4.0}}
    )
    assert not list(written.differences(written.spec(vocabulary=300), base))
    other = ModelSection.model_validate(
        SIZES | {"init_from": "base", "rope_scaling": {"kind": "linear", "factor": 2.0}}
    )
    (problem,) = other.differences(other.spec(vocabulary=300), base)
    assert "this recipe asks for {kind: linear, factor: 2.0}" in str(problem)


def test_a_base_with_other_scales_says_what_to_write() -> None:
    plain = ModelSection.model_validate(SIZES | {"init_from": "base"})
    base = replace(plain.spec(vocabulary=300), scales=Scales(residual=0.25))
    (problem,) = plain.differences(plain.spec(vocabulary=300), base)
    assert "write model.scales={residual: 0.25}" in str(problem)


EXPERTS = {"count": 4, "active": 2, "ffn_width": 16}
LATENT = {"kv_rank": 8, "rope_size": 4}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"family": "mixtral"}, r"experts: this family needs experts \(seen mixtral\); write model\.experts"),
        ({"experts": EXPERTS}, r"experts: this family has no experts \(seen llama\); leave model\.experts out"),
        ({"family": "mixtral", "experts": EXPERTS, "latent": LATENT}, "latent: this family has no latent"),
        ({"family": "deepseek_v3", "experts": EXPERTS}, "latent: this family needs latent"),
        ({"family": "mixtral", "experts": EXPERTS | {"active": 5}}, r"experts\.active \(5\) exceeds experts\.count"),
    ],
)
def test_a_family_has_experts_and_latent_attention_or_has_not(keys, message):
    with pytest.raises(ValueError, match=message):
        ModelSection(**({"layers": 2, "width": 32, "heads": 2} | keys))


def test_what_a_recipe_does_not_say_of_experts_is_the_familys():
    sizes = {"layers": 2, "width": 32, "heads": 2, "experts": EXPERTS}
    mixtral = ModelSection(family="mixtral", **sizes).spec(vocabulary=9)
    assert mixtral.experts.scores == "softmax" and mixtral.experts.balance == "loss" and mixtral.ffn_width == 16
    deepseek = ModelSection(family="deepseek_v3", latent=LATENT, **sizes).spec(vocabulary=9)
    assert deepseek.experts.scores == "sigmoid" and deepseek.experts.balance == "bias"
    assert deepseek.latent.value_size == deepseek.head_size == 16
    assert ModelSection(family="qwen2_moe", **sizes).spec(vocabulary=9).experts.normalised is False


def test_weights_of_balance_losses_are_no_part_of_the_body():
    sizes = {"family": "mixtral", "layers": 2, "width": 32, "heads": 2}
    one, other, third = (
        ModelSection(**sizes, experts=EXPERTS | more).spec(vocabulary=9)
        for more in ({}, {"loss_weight": 0.5, "z_weight": 0.1, "bias_rate": 0.2}, {"active": 1})
    )
    assert one.body_differences(other) == ()
    assert one.body_differences(third) == ("experts",)


def test_a_bias_of_norms_that_have_none_is_refused():
    shape = {"layers": 1, "width": 16, "heads": 2}
    with pytest.raises(ValueError, match="norm_bias is for norm: layernorm, and this network's is rmsnorm"):
        ModelSection.model_validate(shape | {"variant": {"norm_bias": False}})
    variant = {"norm": "layernorm", "norm_bias": False}
    assert not ModelSection.model_validate(shape | {"variant": variant}).spec(vocabulary=8).norm_bias


STAGES = {"depths": [2, 1], "widths": [16, 32], "bottleneck": False}
RESNET = {"family": "resnet", "image_size": 32, "convolutions": STAGES}


def test_sizes_of_a_convolutional_network_follow_from_its_stages():
    section = ModelSection.model_validate(RESNET)
    shape = section.spec(vocabulary=0)
    assert (section.layers, section.width, section.heads, section.context_tokens) == (3, 32, 1, 1)
    assert (shape.vocabulary, shape.head_size, shape.ffn_width, shape.patch_size) == (0, 1, 1, 0)
    assert ModelSection.model_validate(section.model_dump(exclude_unset=True)).spec(vocabulary=0) == shape
    again = {name: value for name, value in keys_of(shape).items() if name != "variant"}
    assert "variant" not in keys_of(shape)
    assert ModelSection.model_validate(again).spec(vocabulary=0) == shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"convolutions": None}, "this family needs convolutions|layers"),
        ({"layers": 4}, r"layers \(4\) is not the 3 of its stages"),
        ({"patch_size": 4}, "patch_size is for a network of patches, which resnet is not"),
        ({"image_size": None}, "resnet needs image_size"),
        ({"convolutions": STAGES | {"widths": [16]}}, "must name the same stages"),
        ({"convolutions": STAGES | {"stride_first": True}}, "stride_first is for bottleneck blocks"),
        ({"family": "vit", "patch_size": 8}, "this family has no convolutions"),
    ],
)
def test_stages_that_cannot_be_are_named(change, message):
    with pytest.raises((RecipeError, ValidationError), match=message):
        ModelSection.model_validate(RESNET | change)
