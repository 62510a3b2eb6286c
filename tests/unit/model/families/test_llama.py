from __future__ import annotations

import json

import pytest
import transformers

from trainwright.core.errors import RecipeError
from trainwright.model.families import llama
from trainwright.spec.parts.dropout import Dropout

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99}


def test_transformers_reads_our_configuration_as_we_meant_it(tiny):
    spec = tiny.spec(rope_theta=123456.0, head_size=16, tied=True)
    theirs = transformers.LlamaConfig(**llama.to_config(spec))
    assert llama.from_config(theirs.to_dict(), where="test") == spec


def test_defaults_are_those_of_transformers():
    theirs = transformers.LlamaConfig(**SMALL).to_dict()
    assert llama.from_config(SMALL, where="test") == llama.from_config(theirs, where="test")


def test_rotary_base_from_either_place():
    old = llama.from_config(SMALL | {"rope_theta": 5e5}, where="test")
    new = llama.from_config(SMALL | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, where="test")
    assert old == new
    assert old.rope_theta == 5e5


NEW, OLD = {"rope_type": "default", "rope_theta": 5e5}, {"type": "default", "rope_theta": 7e5}


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": NEW, "rope_scaling": {"type": "default"}},
        {"rope_parameters": NEW, "rope_scaling": {"type": "default"}, "rope_theta": 3e5},
        {"rope_parameters": NEW, "rope_scaling": {}},
        {"rope_parameters": NEW, "rope_scaling": None, "rope_theta": 3e5},
        {"rope_parameters": NEW, "rope_scaling": OLD},
        {"rope_scaling": OLD, "rope_theta": 3e5},
    ],
    ids=repr,
)
def test_two_sections_of_rotary_settings_are_read_as_transformers_reads_them(tmp_path, change):
    (tmp_path / "config.json").write_text(json.dumps(SMALL | change | {"model_type": "llama"}))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path).rope_parameters
    assert llama.from_config(SMALL | change, where="test").rope_theta == theirs["rope_theta"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "mish"}, "hidden_act='mish'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ({"rope_parameters": {"full_attention": NEW}}, "full_attention={.*}"),
        ({"quantization_config": {"bits": 4}}, "quantization_config={'bits': 4}"),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=rf"here: (rope_\w+: )?this model needs {message}, which is not supported"):
        llama.from_config(SMALL | change, where="here")


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "llama3", "factor": 8.0}, r"low_freq_factor \(seen nothing, expected a positive number\)"),
        ({"type": "linear"}, r"factor \(seen nothing, expected a positive number\)"),
        ({"rope_type": "stretched"}, r"rope_type \(seen 'stretched', expected one of default, linear, "),
        ({"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0]}, r"long_factor \(seen nothing, expected a l"),
    ],
)
def test_rotary_scaling_that_cannot_be_is_named(rope, message):
    with pytest.raises(RecipeError, match=f"here: rope_scaling: bad model configuration: {message}"):
        llama.from_config(SMALL | {"rope_scaling": rope}, where="here")


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("value", ["linear", ["linear"], 7, ""])
def test_rotary_settings_that_are_no_object_are_refused(key, value):
    with pytest.raises(RecipeError, match=f"here: bad model configuration: {key} .*expected an object"):
        llama.from_config(SMALL | {key: value}, where="here")


def test_names_cover_every_parameter(tiny):
    for tied in (True, False):
        model = tiny.decoder(tied=tied)
        ours = dict(model.named_parameters())
        assert llama.from_hf(llama.to_hf(ours, model.spec), model.spec).keys() == ours.keys()


def test_rates_of_dropout_are_in_the_configuration(tiny):
    spec = tiny.spec("llama", dropout=Dropout(residual=0.1, embedding=0.2, attention=0.3))
    config = llama.to_config(spec)
    theirs = transformers.LlamaConfig(**config)
    assert theirs.attention_dropout == 0.3
    assert (config["resid_pdrop"], config["embd_pdrop"]) == (0.1, 0.2)
    assert not {"resid_pdrop", "embd_pdrop"} & llama.to_config(tiny.spec("llama")).keys()
