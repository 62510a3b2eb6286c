"""Adapters of a whole network: which layers, what they begin as, several of them, merging."""

from __future__ import annotations

import pytest
import torch

from fixtures import tiny_models
from trainwright.core.errors import RecipeError
from trainwright.model.adapters.attach import adapted_layers, attach, initialise, merge, unmerge, use
from trainwright.model.build import build_network
from trainwright.model.layers import Linear
from trainwright.planner.counts.adapters import adapter_of, adapter_parameters, placed
from trainwright.spec.parts.adaptation import LowRank
from trainwright.spec.parts.experts import Experts

HOW = LowRank(rank=3, scale=0.5)
EXPERTS = Experts(count=4, active=2, ffn_width=16, dense_layers=1, dense=(1,))
"""Of three layers the middle one has none."""


def scattered(network):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)


@pytest.mark.parametrize("method", ["lora", "dora"])
@pytest.mark.parametrize(
    "words", [["all-linear"], ["attention"], ["q_proj", "down"], ["blocks.1.*"], ["blocks.0.ffn.*"]]
)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_plan_counts_what_is_trained(family, words, method) -> None:
    network = tiny_models.decoder(family)
    attach(network, dict.fromkeys(placed(network.spec, words), HOW), magnitude=method == "dora")
    adapter = adapter_of(network.spec, words, rank=HOW.rank, frozen="fp32", method=method)
    trained = sum(parameter.numel() for parameter in network.trained().values())
    assert adapter_parameters(network.spec, adapter) == trained


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_all_linear_layers_are_those_of_the_blocks(family) -> None:
    network = tiny_models.decoder(family)
    linear = {path for path, module in network.named_modules() if isinstance(module, Linear)}
    assert set(placed(network.spec, ["all-linear"])) == {path for path in linear if path.startswith("blocks.")}


def test_in_a_mixture_they_are_those_that_the_network_has() -> None:
    shape = tiny_models.spec("qwen3_moe", experts=EXPERTS)
    network = build_network(shape)
    linear = {path for path, module in network.named_modules() if isinstance(module, Linear)}
    assert set(placed(shape, ["all-linear"])) == {path for path in linear if path.startswith("blocks.")}
    assert set(placed(shape, ["down_proj"])) == {"blocks.1.ffn.down"}
    attach(network, dict.fromkeys(placed(shape, ["all-linear"]), HOW))
    adapter = adapter_of(shape, ["all-linear"], rank=HOW.rank, frozen="fp32")
    assert adapter_parameters(shape, adapter) == sum(each.numel() for each in network.trained().values())


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("self_attn.q_proj", {f"blocks.{layer}.attention.query" for layer in range(3)}),
        ("blocks.1.ffn.down", {"blocks.1.ffn.down"}),
    ],
)
def test_a_dot_alone_makes_no_pattern_of_a_name(word, paths) -> None:
    assert set(placed(tiny_models.spec("llama"), [word])) == paths


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("experts", r"beside experts, shared ones too \(seen 'experts', expected some of query, .*down"),
        ("mlp.experts", "beside experts"),
        ("self_attn.q_porj", "no such matrix to adapt .*q_porj"),
        ("blocks.7.ffn.down", "no linear layer has such a name"),
    ],
)
def test_targets_that_are_not_trained_are_refused(word, message) -> None:
    with pytest.raises(RecipeError, match=message):
        placed(tiny_models.spec("qwen3_moe", experts=EXPERTS), ["query", word])


def test_new_adapters_change_nothing_and_depend_on_seed_and_name_alone() -> None:
    tokens = torch.arange(20).reshape(2, 10)
    all_of_them, one = tiny_models.decoder(), tiny_models.decoder()
    before = one(tokens)
    attach(all_of_them, dict.fromkeys(placed(one.spec, ["all-linear"]), HOW), magnitude=True)
    attach(one, {"blocks.1.ffn.down": HOW}, magnitude=True)
    initialise(all_of_them, 3)
    initialise(one, 3)
    assert torch.allclose(all_of_them(tokens), before, atol=1e-5)
    assert torch.equal(
        one.trained()["blocks.1.ffn.down.adapters.default.a"],
        dict(adapted_layers(all_of_them))["blocks.1.ffn.down"].adapters["default"].a,
    )
    former = one.trained()["blocks.1.ffn.down.adapters.default.a"].detach().clone()
    bound = former.shape[1] ** -0.5
    assert float(former.abs().max()) <= bound
    assert float(former.std()) == pytest.approx(bound / 3**0.5, rel=0.3)
    initialise(one, 4)
    assert not torch.equal(one.trained()["blocks.1.ffn.down.adapters.default.a"], former)


def test_several_adapters_stand_beside_one_base() -> None:
    tokens = torch.arange(20).reshape(2, 10)
    network = tiny_models.decoder()
    plain, results = network(tokens), {}
    for name, path in (("first", "blocks.0.attention.query"), ("second", "blocks.2.ffn.up")):
        attach(network, {path: HOW}, name=name)
        initialise(network, 1, name=name)
        scattered(network)
        assert all(f".adapters.{name}." in trained for trained in network.trained()), "the earlier one is frozen"
        results[name] = network(tokens)
    for name, expected in results.items():
        use(network, [name])
        assert torch.equal(network(tokens), expected)
    use(network, [])
    assert torch.equal(network(tokens), plain)
    use(network, ["first", "second"])
    both = network(tokens)
    weights = {name: parameter.clone() for name, parameter in network.named_parameters()}
    merge(network)
    assert torch.allclose(network(tokens), both, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="unmerge"):
        use(network, ["first"])
    unmerge(network)
    assert all(torch.equal(parameter, weights[name]) for name, parameter in network.named_parameters())
    with pytest.raises(ValueError, match="third"):
        use(network, ["third"])


def test_a_layer_that_is_not_there_is_named() -> None:
    with pytest.raises(RecipeError, match=r"blocks\.9\.ffn\.up"):
        attach(tiny_models.decoder(), {"blocks.9.ffn.up": HOW})
