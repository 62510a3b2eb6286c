from __future__ import annotations

import pytest
import transformers

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.model.families import phi
from trainwright.spec.model import Dropout
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["phi"][1]


class TestPhi(FamilyContract):
    family = "phi"


@pytest.mark.parametrize("keys", [{}, {"partial_rotary_factor": 0.25, "rope_theta": 5e4}, {"qk_layernorm": True}])
def test_keys_mean_what_transformers_takes_them_for(keys):
    theirs = transformers.PhiConfig(**KEYS | keys)
    rope = theirs.rope_parameters
    spec = phi.from_config(KEYS | keys, where="test")
    assert phi.from_config(theirs.to_dict(), where="test") == spec
    assert (spec.rope_theta, spec.rotary_share) == (rope["rope_theta"], rope["partial_rotary_factor"])
    again = transformers.PhiConfig(**phi.to_config(spec))
    assert again.rope_parameters == rope
    assert phi.from_config(again.to_dict(), where="test") == spec


def test_rates_of_dropout_are_in_the_configuration(tiny):
    shape = tiny.spec("phi", dropout=Dropout(residual=0.1, embedding=0.2, attention=0.3), **SHAPE)
    theirs = transformers.PhiConfig(**phi.to_config(shape))
    assert (theirs.resid_pdrop, theirs.embd_pdrop, theirs.attention_dropout) == (0.1, 0.2, 0.3)


SHAPE = {
    "gated": False,
    "norm": "layernorm",
    "positions": "rope",
    "parallel_residual": True,
    "norms_per_block": 1,
    "head_bias": True,
    "bias": True,
    "tied": False,
}


@pytest.mark.parametrize("change", [{"parallel_residual": False, "norms_per_block": 2}, {"head_bias": False}])
def test_a_shape_that_is_no_phi_is_named(tiny, change):
    with pytest.raises(ValueError, match=r"Hugging Face's phi has (parallel_residual|norms_per_block|head_bias)="):
        phi.to_config(tiny.spec("phi", **SHAPE | change))


def test_scaled_positions_are_refused_by_their_key():
    with pytest.raises(RecipeError, match="here: rope_parameters: this model needs rope_type='dynamic'"):
        phi.from_config(KEYS | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, where="here")
