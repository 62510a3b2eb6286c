"""What sets each decoder of Llama's kind apart; windows are held against the layer kinds that transformers derives."""

from __future__ import annotations

import math

import pytest

from fixtures.reference_models import SMALL, build
from trainwright.core.errors import RecipeError
from trainwright.spec.families import rmsnorm
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.sections.model import ModelSection

WINDOWED = ["qwen2-windowed", "gemma2", "gemma3_text", "gpt_oss", "qwen3", "qwen2"]


def keys_of(name, **changes):
    return ConfigReader(SMALL[name][1] | changes, where="config.json")


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_are_where_transformers_puts_them(name):
    module, spec = build(*SMALL[name])
    kinds = module.config.layer_types
    windowed = [layer for layer in range(spec.layers) if spec.window_of(layer) is not None]
    assert windowed == [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]
    assert spec.window_tokens == (module.config.sliding_window if "sliding_attention" in kinds else None)


def test_a_list_of_kinds_goes_before_the_rule():
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    assert rmsnorm.gemma2(keys_of("gemma2", layer_types=kinds)).windowed_layers == 1
    assert rmsnorm.gemma2(keys_of("gemma2", layer_types=["full_attention"] * 3)).window_tokens is None


def test_mistral_windows_every_layer_or_none():
    assert rmsnorm.mistral(keys_of("mistral")).windowed_layers == 3
    assert rmsnorm.mistral(keys_of("mistral", sliding_window=None)).windowed_layers == 0


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("mistral", {}),
        ("phi3", {}),
        ("granite", {}),
        ("qwen2", {"qkv_bias": True}),
        ("qwen3", {"qk_norm": True}),
        ("gemma", {"norm_offset": 1.0, "activation": "gelu_tanh", "tied": True, "ffn_width": 8 * 96}),
        ("gemma2", {"score_cap": 50.0, "logit_cap": 30.0, "norms_per_block": 4, "window_layers": (0, 2, 4, 6)}),
        ("gemma3_text", {"qk_norm": True, "window_layers": (0, 1, 2, 3, 4, 6), "window_rope_theta": 1e4}),
    ],
)
def test_a_recipe_that_names_the_family_has_its_parts(family, fields):
    spec = ModelSection(family=family, layers=7, width=96, heads=4).spec(vocabulary=300)
    assert {name: getattr(spec, name) for name in fields} == fields
    assert spec.scales.embedding == (math.sqrt(96) if family.startswith("gemma") else 1.0)
    assert spec.problems() == ()


def test_a_scale_of_scores_that_is_the_usual_one_is_none():
    assert rmsnorm.granite(keys_of("granite", attention_multiplier=0.25)).scales.attention is None
    assert rmsnorm.granite(keys_of("granite")).scales.attention == 1.0
    assert rmsnorm.gemma2(keys_of("gemma2", query_pre_attn_scalar=24)).scales.attention is None


def test_caps_may_be_switched_off():
    spec = rmsnorm.gemma2(keys_of("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None))
    assert spec.score_cap is spec.logit_cap is None


@pytest.mark.parametrize(
    ("reader", "changes", "message"),
    [
        (rmsnorm.gemma2, {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
        (
            rmsnorm.gemma3_text,
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "sliding_attention: this model needs rope_type='linear'",
        ),
    ],
)
def test_what_is_not_computed_is_refused_by_its_key(reader, changes, message):
    with pytest.raises(RecipeError, match=message):
        reader(keys_of("gemma2", **changes))


def test_gemma_3_has_its_rotary_settings_in_either_version_s_place():
    new = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}}
    new |= {"sliding_attention": {"rope_theta": 2e4, "rope_type": "default"}}
    old = {"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    read = rmsnorm.gemma3_text(keys_of("gemma3_text", rope_parameters=new))
    assert read == rmsnorm.gemma3_text(keys_of("gemma3_text", **old))
    assert (read.rope_theta, read.window_rope_theta, read.rope_scaling.factor) == (5e5, 2e4, 8.0)
