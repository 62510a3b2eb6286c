from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama
from trainwright.spec.parts.rotary import RopeScaling

KEYS = SMALL["llama"][1]


def read(**changes):
    return llama(ConfigReader(KEYS | changes, where="config.json"))


def test_scaled_rotary_positions_are_said_and_change_nothing_else():
    rope = {"rope_type": "linear", "factor": 8.0}
    plain, scaled = read(rope_theta=5e5), read(rope_theta=5e5, rope_scaling=rope)
    assert scaled == replace(plain, rope_scaling=RopeScaling(kind="linear", factor=8.0))
    assert plain.rope_theta == 5e5


def test_biases_stand_where_each_switch_puts_them():
    spec = read(attention_bias=True)
    assert (spec.bias, spec.qkv_bias, spec.output_bias) == (False, True, True)
    spec = read(mlp_bias=True)
    assert (spec.bias, spec.qkv_bias, spec.output_bias) == (True, False, False)
    spec = read(attention_bias=True, mlp_bias=True)
    assert (spec.bias, spec.qkv_bias, spec.output_bias) == (True, None, None)


def test_a_classifier_of_sequences_has_its_classes_and_no_logits():
    spec = read(architectures=["LlamaForSequenceClassification"], id2label={"0": "a", "1": "b", "2": "c"})
    assert (spec.classes, spec.makes_logits) == (3, False)


def test_a_head_for_questions_is_refused():
    with pytest.raises(RecipeError, match=r"architectures='LlamaForQuestionAnswering'.*\.\.\.ForCausalLM"):
        read(architectures=["LlamaForQuestionAnswering"])
