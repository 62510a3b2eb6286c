"""Configurations against transformers' own reading of them; what is malformed is named in one line."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL, build
from trainwright.core.errors import RecipeError
from trainwright.spec.families.huggingface import READERS, from_huggingface
from trainwright.spec.model import FAMILIES, PLANNED_FAMILIES

LLAMA = {"model_type": "llama", **SMALL["llama"][1]}


@pytest.mark.parametrize("name", SMALL)
def test_defaults_are_those_of_transformers(name):
    architecture, keys = SMALL[name]
    module, whole = build(architecture, keys)
    terse = {"model_type": module.config.model_type, "architectures": [architecture], **keys}
    assert from_huggingface(terse, where="terse") == whole


@pytest.mark.parametrize("name", SMALL)
def test_what_is_read_can_be(name):
    module, spec = build(*SMALL[name])
    assert spec.problems() == ()
    assert spec.family == module.config.model_type


def test_every_planned_family_has_a_reader():
    assert set(FAMILIES) <= set(READERS)
    assert set(READERS) == set(PLANNED_FAMILIES) - {"transformer"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], r"^here: bad model configuration \(seen list, expected an object\)"),
        ({}, r"^here: unknown model_type \(seen nothing, expected one of bert, "),
        ({"model_type": "lama"}, r"unknown model_type \(seen 'lama', .*did you mean 'llama'"),
        ({"model_type": "gemma3", "text_config": {}}, "only its text part can be planned: give text_config as a file"),
        ({"model_type": ["llama"]}, "unknown model_type"),
        (LLAMA | {"hidden_size": "4096"}, r"hidden_size \(seen '4096', expected a whole number >= 1\)"),
        ({k: v for k, v in LLAMA.items() if k != "vocab_size"}, r"vocab_size \(seen nothing, expected a whole number"),
        ({"hidden_siz": 64, "model_type": "llama"}, r"hidden_size \(seen nothing, .*did you mean 'hidden_siz'"),
        (LLAMA | {"num_attention_heads": 0}, r"num_attention_heads \(seen 0, expected a whole number >= 1\)"),
        (LLAMA | {"num_key_value_heads": 3}, r"this model cannot be: heads \(4\) must be a multiple of kv_heads \(3\)"),
        (LLAMA | {"tie_word_embeddings": "no"}, r"tie_word_embeddings \(seen 'no', expected true or false\)"),
        (LLAMA | {"hidden_act": "sin"}, r"needs hidden_act='sin', which is not supported \(expected silu, "),
        (LLAMA | {"rope_theta": -1}, r"rope_theta \(seen -1, expected a positive number\)"),
        (LLAMA | {"rope_parameters": 7}, r"rope_parameters \(seen 7, expected an object\)"),
        (LLAMA | {"architectures": ["LlamaForQuestionAnswering"]}, "architectures='LlamaForQuestionAns"),
    ],
)
def test_what_is_malformed_is_named(config, message):
    with pytest.raises(RecipeError, match=message) as caught:
        from_huggingface(config, where="here")
    assert "\n" not in str(caught.value)


def test_kimi_is_deepseeks_network():
    architecture, keys = SMALL["deepseek_v3"]
    module, spec = build(architecture, keys)
    kimi = from_huggingface(module.config.to_dict() | {"model_type": "kimi_k2"}, where="kimi")
    assert (kimi.experts, kimi.latent, kimi.width) == (spec.experts, spec.latent, spec.width)
