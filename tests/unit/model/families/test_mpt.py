from __future__ import annotations

import pytest
import transformers

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.model.families import mpt
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["mpt"][1]


class TestMPT(FamilyContract):
    family = "mpt"


def test_transformers_reads_our_configuration_as_we_meant_it():
    spec = mpt.from_config(KEYS | {"attn_config": {"softmax_scale": 0.5}}, where="test")
    assert spec.scales.attention == 0.5
    theirs = transformers.MptConfig(**mpt.to_config(spec))
    assert theirs.attn_config.softmax_scale == 0.5
    assert mpt.from_config(theirs.to_dict(), where="test") == spec


@pytest.mark.parametrize(
    "change",
    [
        {"alibi": False},
        {"alibi_bias_max": 16},
        {"attn_type": "multiquery_attention"},
        {"attn_uses_sequence_id": True},
        {"clip_qkv": 6},
        {"kv_n_heads": 2},
        {"prefix_lm": True},
        {"qk_ln": True},
    ],
    ids=repr,
)
def test_settings_of_attention_that_are_not_built_are_refused_by_their_key(change):
    with pytest.raises(RecipeError, match=f"here: attn_config: this model needs {next(iter(change))}="):
        mpt.from_config(KEYS | {"attn_config": change}, where="here")


@pytest.mark.parametrize(
    "change", [{"no_bias": False}, {"expansion_ratio": 2}, {"logit_scale": 0.5}, {"embedding_fraction": 0.5}], ids=repr
)
def test_what_is_not_built_is_refused_by_its_key(change):
    with pytest.raises(RecipeError, match=f"here: this model needs {next(iter(change))}="):
        mpt.from_config(KEYS | change, where="here")
