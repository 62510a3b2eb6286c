from __future__ import annotations

import pytest
import torch
import transformers

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.families import gpt_neox
from trainwright.spec.sections.model import ModelSection
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["gpt_neox"][1]


class TestGPTNeoX(FamilyContract):
    family = "gpt_neox"


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"rotary_pct": 0.5, "rotary_emb_base": 5e4},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 1.0}},
        {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "relu"},
    ],
    ids=repr,
)
def test_keys_mean_what_transformers_takes_them_for(keys):
    theirs = transformers.GPTNeoXConfig(**KEYS | keys)
    rope = theirs.rope_parameters
    spec = gpt_neox.from_config(KEYS | keys, where="test")
    assert gpt_neox.from_config(theirs.to_dict(), where="test") == spec
    assert (spec.rope_theta, spec.rotary_share) == (rope["rope_theta"], rope["partial_rotary_factor"])
    assert spec.parallel_residual == theirs.use_parallel_residual
    again = transformers.GPTNeoXConfig(**gpt_neox.to_config(spec))
    assert again.rope_parameters == rope
    assert gpt_neox.from_config(again.to_dict(), where="test") == spec


def test_both_names_of_the_head_are_taken():
    network = build_network(ModelSection(family="gpt_neox", layers=1, width=32, heads=2).spec(vocabulary=20))
    network.initialise(1)
    theirs = gpt_neox.to_hf(dict(network.named_parameters()), network.spec)
    renamed = {name.replace("embed_out", "lm_head"): weight for name, weight in theirs.items()}
    assert theirs.keys() != renamed.keys()
    for weights in (theirs, renamed):
        assert torch.equal(gpt_neox.from_hf(weights, network.spec)["head.weight"], network.head_weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
            "rope_parameters: this model needs rope_type='yarn'",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling: this model needs type='linear'"),
        ({"hidden_act": "mish"}, "this model needs hidden_act='mish'"),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: {message}"):
        gpt_neox.from_config(KEYS | change, where="here")
