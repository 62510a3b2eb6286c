"""What sets each decoder with LayerNorm apart; what its network computes is in tests/unit/model/families."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.families import layernorm
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.sections.model import ModelSection

FAMILIES = ("bloom", "falcon", "gpt_neox", "mpt", "opt", "phi", "starcoder2")


def keys_of(name, **changes):
    return ConfigReader(SMALL[name][1] | changes, where="config.json")


def test_older_names_of_keys_are_read():
    new = layernorm.bloom(keys_of("bloom"))
    old = {"n_embed": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 301}
    assert layernorm.bloom(ConfigReader(old, where="old")) == new
    keys = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
    older = {"n_embed": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_head_kv": 4}
    falcons = [layernorm.falcon(ConfigReader(each, where="x")) for each in (keys, older)]
    assert falcons[0] == falcons[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_of_sizes_alone_is_what_the_familys_own_defaults_are(family):
    """Where both say nothing, a recipe and a configuration of the same sizes are one shape."""
    name = {"falcon": "falcon-7b-like"}.get(family, family)
    theirs = getattr(layernorm, family)(keys_of(name))
    sizes = {"layers": 3, "kv_heads": theirs.kv_heads, "width": 64, "heads": 4, "context_tokens": theirs.context_tokens}
    recipe = ModelSection(family=family, ffn_width=theirs.ffn_width, **sizes).spec(vocabulary=theirs.vocabulary)
    assert recipe == theirs


def test_biases_of_attention_alone_are_left_out():
    whole, none = (layernorm.gpt_neox(keys_of("gpt_neox", attention_bias=each)) for each in (True, False))
    assert (whole.qkv_bias, whole.output_bias, none.qkv_bias, none.output_bias) == (None, None, False, False)
    assert total_parameters(whole) - total_parameters(none) == 3 * 4 * 64


def test_another_head_than_a_language_model_or_a_classifier_is_refused():
    with pytest.raises(RecipeError, match="architectures='OPTForQuestionAnswering'"):
        layernorm.opt(keys_of("opt", architectures=["OPTForQuestionAnswering"]))
    spec = layernorm.opt(keys_of("opt", architectures=["OPTForSequenceClassification"], num_labels=3))
    assert (spec.classes, spec.language_head) == (3, False)
