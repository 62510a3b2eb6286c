"""What a recipe's sizes are completed with agrees with what a configuration of the family says."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.model import ModelSection

SIZES = {"layers": 4, "width": 64, "heads": 4, "kv_heads": 2, "head_size": 16}
EXPERTS = {"experts": {"count": 4, "active": 2, "ffn_width": 32}}
LATENT = {"latent": {"kv_rank": 16, "rope_size": 8, "value_size": 16}}


def shape(family, **keys):
    return ModelSection.model_validate({"family": family, **SIZES, **EXPERTS, **keys}).spec(vocabulary=100)


def test_every_other_layer_of_gpt_oss_has_a_window() -> None:
    assert [shape("gpt_oss").window_of(layer) for layer in range(4)] == [128, None, 128, None]
    assert shape("gpt_oss", layers=1).window_layers is None
    narrow = shape("gpt_oss", window_tokens=8)
    assert (narrow.window_tokens, narrow.window_layers, narrow.sinks) == (8, (0, 2), True)


def test_deepseeks_differ_in_scores_and_balance() -> None:
    second, third = shape("deepseek_v2", **LATENT).experts, shape("deepseek_v3", **LATENT).experts
    assert (second.scores, second.normalised, second.group_best, second.balance) == ("softmax", False, 1, "loss")
    assert (third.scores, third.normalised, third.group_best, third.balance) == ("sigmoid", True, 2, "bias")


@pytest.mark.parametrize(("family", "field"), [("qwen2_moe", "qkv_bias"), ("qwen3_moe", "qk_norm")])
def test_a_family_has_its_own_fields(family, field) -> None:
    assert getattr(shape(family), field) is True
