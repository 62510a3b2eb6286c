from __future__ import annotations

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.families import gpt_oss
from trainwright.spec.sections.model import ModelSection

EXPERTS = {"count": 3, "active": 2, "ffn_width": 5}


def test_gate_and_up_lie_side_by_side_element_by_element():
    spec = ModelSection(family="gpt_oss", layers=1, width=8, heads=2, experts=EXPERTS).spec(vocabulary=9)
    network = build_network(spec)
    network.initialise(1)
    ours = {name: tensor.detach() for name, tensor in network.stored()}
    theirs = gpt_oss.to_hf(ours, spec)
    joined = theirs["model.layers.0.mlp.experts.gate_up_proj"]
    assert joined.shape == (3, 8, 10)
    assert torch.equal(joined[1, :, 4], ours["blocks.0.ffn.gate.weight"][1, 2])
    assert torch.equal(joined[1, :, 5], ours["blocks.0.ffn.up.weight"][1, 2])
    again = gpt_oss.from_hf(theirs, spec)
    assert again.keys() == ours.keys() and all(torch.equal(again[name], tensor) for name, tensor in ours.items())


@pytest.mark.parametrize("change", [{"hidden_act": "gelu"}, {"quantization_config": {"quant_method": "mxfp4"}}])
def test_what_is_not_computed_is_refused(change):
    spec = ModelSection(family="gpt_oss", layers=1, width=8, heads=2, experts=EXPERTS).spec(vocabulary=9)
    with pytest.raises(RecipeError, match=f"this model needs {next(iter(change))}="):
        gpt_oss.from_config(gpt_oss.to_config(spec) | change, where="here")
