"""ModernBERT's configurations: what they mean, in both versions of transformers, and what is not computed."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import published_model
from trainwright.model.families import modernbert
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.families.modernbert import MODERNBERT
from trainwright.spec.sections.model import ModelSection, keys_of

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 24,
}


def read(**changes):
    return modernbert.from_config(SIZES | changes, where="here")


def test_one_layer_of_three_sees_all_tokens():
    spec = read()
    assert [spec.window_of(layer) for layer in range(7)] == [None, 128, 128, None, 128, 128, None]
    assert (spec.rope_theta, spec.window_rope_theta) == (160_000.0, 10_000.0)
    other = read(global_attn_every_n_layers=2, local_attention=16, global_rope_theta=5e4, local_rope_theta=None)
    assert [other.window_of(layer) for layer in range(7)] == [None, 16] * 3 + [None]
    assert (other.rope_theta, other.window_rope_theta) == (5e4, 5e4), "null: as in the other layers"
    whole = read(layer_types=["full_attention"] * 7)
    assert (whole.windowed_layers, whole.window_tokens, whole.window_rope_theta) == (0, None, None)


@pytest.mark.parametrize(
    ("architecture", "logits", "pooler", "classes"),
    [
        (None, True, False, 0),
        ("ModernBertForMaskedLM", True, False, 0),
        ("ModernBertForSequenceClassification", False, True, 3),
        ("ModernBertForTokenClassification", False, False, 3),
        ("ModernBertForQuestionAnswering", False, False, 3),
        ("ModernBertModel", False, False, 0),
    ],
)
def test_it_stands_under_one_of_its_heads(architecture, logits, pooler, classes):
    spec = read(architectures=architecture and [architecture], num_labels=3)
    assert (spec.makes_logits, spec.pooler, spec.classes) == (logits, pooler, classes)
    assert spec.transforms == (logits or classes > 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_activation": "silu"}, "needs hidden_activation='silu'"),
        ({"classifier_activation": "relu"}, "needs classifier_activation='relu'"),
        ({"classifier_bias": True}, "needs classifier_bias=True"),
        ({"mlp_bias": True, "classifier_bias": False}, "needs classifier_bias=False"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "needs rope_scaling="),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "needs rope_type='linear'"),
        ({"layer_types": ["full_attention"]}, "needs layer_types="),
        ({"layer_types": ["chunked_attention"] * 7}, "needs layer_types="),
        ({"architectures": ["ModernBertForMultipleChoice"]}, "needs architectures='ModernBertForMultipleChoice'"),
        ({"quantization_config": {}}, "needs quantization_config="),
        ({"local_attention": -1}, r"local_attention \(seen -1, expected a whole number >= 1\)"),
        ({"classifier_pooling": "max"}, r"classifier_pooling \(seen 'max', expected one of cls, mean\)"),
        ({"global_attn_every_n_layers": 0}, r"global_attn_every_n_layers \(seen 0, expected a whole number >= 1\)"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_key(change, message):
    with pytest.raises(RecipeError, match=message) as caught:
        read(**change)
    assert "\n" not in str(caught.value)


def test_a_base_of_zero_is_that_of_all_layers():
    sizes = {"family": "modernbert", "layers": 7, "width": 32, "heads": 4, "rope_theta": 5e4}
    spec = ModelSection(**sizes, variant={"window_rope_theta": 0}).spec(vocabulary=61)
    assert spec.window_rope_theta is None
    config = huggingface_config(spec, where="here")
    assert config["local_rope_theta"] == config["global_rope_theta"] == 5e4


def test_a_recipe_says_every_shape_that_is_read():
    keys = {"attention_bias": True, "classifier_pooling": "cls", "local_rope_theta": 77.0, "norm_bias": True}
    for spec in (read(), read(**keys), read(global_attn_every_n_layers=2, local_attention=6)):
        asked = ModelSection.model_validate(keys_of(spec)).spec(vocabulary=spec.vocabulary)
        assert not asked.body_differences(spec)
        assert asked.pooling == spec.pooling
    section = ModelSection(family="modernbert", layers=7, width=32, heads=4)
    assert section.spec(vocabulary=61).ffn_width == MODERNBERT.ffn_width(32) == 48


@pytest.mark.parametrize(("name", "parameters"), [("modernbert-base", 149), ("modernbert-large", 395)])
def test_the_published_ones_are_read(name, parameters):
    published = published_model(name)
    assert round(published.parameters / 1e6) == pytest.approx(parameters, abs=1)
    spec = published.spec
    assert (spec.family, spec.pooling, spec.context_tokens) == ("modernbert", "mean", 8192)
