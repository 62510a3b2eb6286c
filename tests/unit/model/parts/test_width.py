"""Networks whose rates and first weights follow the width (muP): values by hand, and how activations grow with it."""

from __future__ import annotations

import math

import pytest
import torch

from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.parts.width import follow_width
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection, GroupSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.weights.beginning import fill

BASE, WIDEST = 64, 512
VOCABULARY, TOKENS = 64, 16


def network_of(*, mup: bool = True, **keys: object) -> Network:
    """A network with first weights; ``mup`` has ``BASE`` as its base."""
    width = {"mup": {"base_width": BASE}} if mup else {}
    section = ModelSection.model_validate({"layers": 2, "heads": 4, "context_tokens": TOKENS, **width, **keys})
    network = build_network(section.spec(vocabulary=VOCABULARY))
    values = network.initial(1)
    fill(network, follow_width(network, section.width_ratio, values, first=True) if section.mup is not None else values)
    return network


def after_updates(family: str, width: int, *, mup: bool) -> tuple[float, float]:
    """By how much logits change in four updates, and how large the last block's output is then: standard deviations."""
    network = network_of(family=family, width=width, heads=width // 16, mup=mup)
    optimizers = Optimizers(network, AdamWAloneSection(lr=1e-2))
    tokens = torch.randint(VOCABULARY, (4, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    first = network.logits(network(inputs)).detach()
    for _ in range(4):
        loss, count = network.head_loss(network(inputs).flatten(0, 1), targets)
        (loss / count).backward()
        optimizers.step(1.0)
        optimizers.zero_grad()
    outputs: list[torch.Tensor] = []
    network.blocks[-1].register_forward_hook(lambda _block, _inputs, output: outputs.append(output))
    with torch.no_grad():
        moved = network.logits(network(inputs)) - first
    return float(moved.std()), float(outputs[-1].std())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_activations_after_updates_do_not_grow_with_the_width(family: str) -> None:
    """The coordinate check of Tensor Programs V, appendix D.1."""
    for mup in (True, False):
        narrow, wide = (after_updates(family, width, mup=mup) for width in (BASE, WIDEST))
        for small, large in zip(narrow, wide, strict=True):
            assert large < 1.5 * small if mup else large > 3 * small, (mup, narrow, wide)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_at_the_width_of_the_base_nothing_changes_to_the_bit(family: str) -> None:
    tokens = torch.arange(TOKENS)[None]
    plain, same = (network_of(family=family, width=BASE, mup=mup) for mup in (False, True))
    section = AdamWAloneSection(lr=1e-2)
    for network in (plain, same):
        optimizers = Optimizers(network, section)
        loss, _ = network.head_loss(network(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizers.step(1.0)
    assert plain.spec == same.spec
    expected = dict(plain.named_parameters())
    assert all(torch.equal(each, expected[name]) for name, each in same.named_parameters())


def test_first_weights_have_a_variance_of_one_over_the_width() -> None:
    scaled, plain = (dict(network_of(width=4 * BASE, mup=mup, tied=False).named_parameters()) for mup in (True, False))
    for name, weight in plain.items():
        inside = name.startswith("blocks.") and weight.ndim == 2
        assert torch.equal(scaled[name], weight / 2 if inside else weight), name
    assert float(scaled["blocks.0.attention.query.weight"].detach().std()) == pytest.approx(
        0.02 / math.sqrt(4), rel=0.02
    )


def test_matrices_of_blocks_have_a_rate_and_a_decay_of_their_own() -> None:
    network = network_of(width=4 * BASE, tied=False)
    groups = (GroupSection(match="*query*", lr="x0.5"), GroupSection(match="*key*", lr=1e-3, weight_decay=0.0))
    optimizers = Optimizers(network, AdamWAloneSection(lr=8e-3, embedding_lr=2e-2, weight_decay=0.1, groups=groups))
    names = {parameter: name for name, parameter in network.named_parameters()}
    got = {
        names[parameter]: (group["peak_lr"], round(group["weight_decay"], 9))
        for member in optimizers.members
        for group in member.param_groups
        for parameter in group["params"]
    }
    assert got["blocks.1.attention.value.weight"] == (2e-3, 0.4), "a step takes 8e-4 of a weight, as at the base"
    assert got["blocks.0.attention.query.weight"] == (1e-3, 0.4), "a share of what it would have"
    assert got["blocks.0.attention.key.weight"] == (1e-3, 0.0), "as the recipe writes it"
    assert got["head.weight"] == (8e-3, 0.1)
    assert got["embedding"] == (2e-2, 0.1)
    assert got["norm.weight"] == (8e-3, 0.0)
    assert optimizers.peak_rates["train/matrix_lr"] == 2e-3


def test_weights_of_a_base_stay_as_they_are() -> None:
    network, plain = (network_of(width=4 * BASE, mup=False) for _ in range(2))
    fill(network, follow_width(network, 4.0, plain.stored(), first=False))
    expected = dict(plain.named_parameters())
    assert all(torch.equal(each, expected[name]) for name, each in network.named_parameters())
    assert network.width_ratio == 4.0
