"""Where rows of our matrices lie in Hugging Face's: put back there, they make the family's own weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from fixtures import tiny_models
from trainwright.core.errors import RecipeError
from trainwright.model.adapters.rows import rows_of
from trainwright.model.build import build_network
from trainwright.model.layers import Linear
from trainwright.planner.counts.adapters import placed
from trainwright.spec.families.family import FAMILY, huggingface_form
from trainwright.spec.model import FAMILIES
from trainwright.spec.parts.experts import Experts

EXPERTS = Experts(count=4, active=2, ffn_width=16, dense_layers=1)
MIXTURES: Mapping[str, Experts] = {
    "qwen3_moe": replace(EXPERTS, dense=(1,)),
    "deepseek_v3": replace(EXPERTS, scores="sigmoid", balance="bias", shared_ffn_width=16),
    "gpt_oss": replace(EXPERTS, dense_layers=0, router_bias=True, bias=True, limit=7.0),
}
OF_BLOCKS = [name for name in FAMILIES if not FAMILY.load(name).sees_images]


@pytest.mark.parametrize("family", MIXTURES)
def test_rows_are_those_of_a_mixture(family) -> None:
    network = build_network(tiny_models.spec(family, experts=MIXTURES[family]))
    network.initialise(0)
    check_rows(network, family)


@pytest.mark.parametrize("family", OF_BLOCKS)
def test_rows_are_those_of_the_family(family) -> None:
    network = build_network(tiny_models.spec(family))
    network.initialise(0)
    found = check_rows(network, family)
    linear = {path for path, module in network.named_modules() if isinstance(module, Linear)}
    assert set(found) == {path for path in linear if path.startswith("blocks.")}


def check_rows(network, family):
    weights = dict(network.stored())
    theirs = huggingface_form(family, where="x").to_hf(weights, network.spec)
    found = rows_of(network.spec, placed(network.spec, ["all-linear"]), where="x")
    for path, place in found.items():
        whole = theirs[f"{place.module}.weight"]
        whole = whole.T if place.transposed else whole
        assert place.outputs == whole.shape[0]
        assert torch.equal(whole[place.rows], weights[f"{path}.weight"])
    return found


@pytest.mark.parametrize("family", OF_BLOCKS)
def test_a_family_says_which_matrices_its_form_joins(family) -> None:
    shape = tiny_models.spec(family)
    matrices, modules = placed(shape, ["all-linear"]), {}
    for path, place in rows_of(shape, matrices, where="x").items():
        modules.setdefault(place.module, []).append(matrices[path].name)
    joined = {tuple(names) for names in modules.values() if len(names) > 1}
    assert joined == set(FAMILY.load(family).joined)


def test_a_layer_without_a_form_is_named() -> None:
    with pytest.raises(RecipeError, match=r"blocks\.0\.ffn\.gate"):
        rows_of(tiny_models.spec("gpt2"), ["blocks.0.ffn.gate"], where="x")
