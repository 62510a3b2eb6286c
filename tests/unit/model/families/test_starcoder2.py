from __future__ import annotations

import transformers

from fixtures.reference_models import SMALL
from trainwright.model.families import starcoder2
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["starcoder2"][1]


class TestStarCoder2(FamilyContract):
    family = "starcoder2"


def test_defaults_are_those_of_transformers_and_come_back_from_it():
    spec = starcoder2.from_config(KEYS | {"sliding_window": 16, "rope_theta": 5e4}, where="test")
    assert (spec.window_tokens, spec.window_layers) == (16, None)
    theirs = transformers.Starcoder2Config(**starcoder2.to_config(spec))
    assert theirs.rope_parameters["rope_theta"] == 5e4
    assert starcoder2.from_config(theirs.to_dict(), where="test") == spec
    plain = transformers.Starcoder2Config(**KEYS).to_dict()
    assert starcoder2.from_config(KEYS, where="test") == starcoder2.from_config(plain, where="test")
