from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch
import transformers
from transformers.models.falcon import modeling_falcon

from fixtures.reference_models import SIZES
from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.bundle import build
from trainwright.model.families import falcon
from trainwright.testing.contract_family import FamilyContract

RW = {"multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}


class TestFalcon(FamilyContract):
    family = "falcon"


class TestFalconOfManyGroups(FamilyContract):
    family = "falcon"
    sizes = FamilyContract.sizes | {"kv_heads": 2}


@pytest.mark.parametrize(
    ("keys", "kv_heads", "norms", "side_by_side"),
    [
        ({}, 1, 1, True),
        ({"multi_query": False}, 4, 1, True),
        ({"multi_query": False, "parallel_attn": False}, 4, 2, False),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, 2, True),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, 2, 1, True),
        ({"new_decoder_architecture": True}, 4, 2, True),
        (RW, 4, 2, False),
    ],
    ids=repr,
)
def test_each_kind_is_read_and_written_as_it_is(keys, kv_heads, norms, side_by_side):
    spec = falcon.from_config(SIZES | keys, where="test")
    assert (spec.kv_heads, spec.norms_per_block, spec.parallel_residual) == (kv_heads, norms, side_by_side)
    theirs = transformers.FalconConfig(**falcon.to_config(spec))
    assert falcon.from_config(theirs.to_dict(), where="test") == spec


def _exact_biases(mask, heads, dtype):
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
    return (slopes[:, None, None] * torch.arange(mask.shape[1])).to(dtype).repeat(len(mask), 1, 1)


@pytest.mark.parametrize(("heads", "equal"), [(8, True), (16, False)])
def test_biases_are_exact_where_transformers_rounds_them_to_bfloat16(tmp_path, heads, equal):
    torch.manual_seed(0)
    config = transformers.FalconConfig(
        vocab_size=99, hidden_size=64, num_hidden_layers=1, num_attention_heads=heads, **RW, attn_implementation="sdpa"
    )
    theirs = transformers.FalconForCausalLM(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    spec, tokens = read_shape(tmp_path), torch.randint(0, 99, (2, 60))
    ours = build(spec, hf.read_weights(tmp_path, spec), where=tmp_path)
    with torch.no_grad():
        found = ours.logits(ours(tokens))
        with mock.patch.object(modeling_falcon, "build_alibi_tensor", _exact_biases):
            torch.testing.assert_close(found, theirs(tokens).logits, atol=1e-4, rtol=1e-4)
        assert torch.allclose(found, theirs(tokens).logits, atol=1e-4, rtol=1e-4) == equal


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn=False"),
        ({"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn=2"),
    ],
)
def test_what_transformers_itself_cannot_run_is_refused(keys, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}"):
        falcon.from_config(SIZES | keys, where="here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "rmsnorm"}, "norm=layernorm here, not rmsnorm"),
        (
            {"kv_heads": 2, "parallel_residual": False, "norms_per_block": 2},
            "falcon has no such shape: .*parallel_attn=False",
        ),
    ],
)
def test_a_shape_that_is_no_falcon_is_named(change, message):
    spec = falcon.from_config(SIZES, where="test")
    with pytest.raises(ValueError, match=message):
        falcon.to_config(replace(spec, **change))
