from __future__ import annotations

import pytest
import torch
import transformers

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.families import opt
from trainwright.spec.sections.model import ModelSection
from trainwright.testing.contract_family import FamilyContract

KEYS = SMALL["opt"][1]


class TestOPT(FamilyContract):
    family = "opt"


def test_the_first_two_rows_of_positions_are_never_used():
    network = build_network(
        ModelSection(family="opt", layers=1, width=32, heads=2, context_tokens=8).spec(vocabulary=20)
    )
    network.initialise(1)
    network(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    used = network.positions.grad.abs().sum(dim=1) > 0
    assert used.tolist() == [False] * 2 + [True] * 8


def test_defaults_are_those_of_transformers():
    theirs = transformers.OPTConfig(**KEYS).to_dict()
    assert opt.from_config(KEYS, where="test") == opt.from_config(theirs, where="test")


@pytest.mark.parametrize(
    "change",
    [
        {"word_embed_proj_dim": 32},
        {"layer_norm_elementwise_affine": False},
        {"do_layer_norm_before": False},
        {"_remove_final_layer_norm": True},
    ],
    ids=repr,
)
def test_what_is_not_built_is_refused_by_its_key(change):
    with pytest.raises(RecipeError, match=f"here: this model needs {next(iter(change))}="):
        opt.from_config(KEYS | change, where="here")
