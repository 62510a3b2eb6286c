from __future__ import annotations

import pytest
import torch
import transformers

from trainwright.core.errors import RecipeError
from trainwright.model.families import gpt2

SMALL = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99}


def test_transformers_reads_our_configuration_as_we_meant_it(tiny):
    spec = tiny.spec("gpt2", tied=False, norm_epsilon=1e-6)
    theirs = transformers.GPT2Config(**gpt2.to_config(spec))
    assert gpt2.from_config(theirs.to_dict(), where="test") == spec


def test_defaults_are_those_of_transformers():
    theirs = transformers.GPT2Config(**SMALL).to_dict()
    assert gpt2.from_config(SMALL, where="test") == gpt2.from_config(theirs, where="test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "relu"}, "activation_function='relu'"),
        ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}, which is not supported"):
        gpt2.from_config(SMALL | change, where="here")


@pytest.mark.parametrize("tied", [True, False])
def test_weights_there_and_back(tiny, tied):
    model = tiny.decoder("gpt2", tied=tied)
    ours = dict(model.named_parameters())
    theirs = gpt2.to_hf(ours, model.spec)
    back = gpt2.from_hf(theirs, model.spec)
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_names_of_the_bare_model_are_taken_too(tiny):
    model = tiny.decoder("gpt2")
    theirs = gpt2.to_hf(dict(model.named_parameters()), model.spec)
    bare = {name.removeprefix("transformer."): weight for name, weight in theirs.items()}
    assert gpt2.from_hf(bare, model.spec).keys() == dict(model.named_parameters()).keys()
