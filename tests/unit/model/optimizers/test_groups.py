"""Groups by pattern: who got what, what is frozen, and what is refused."""

from __future__ import annotations

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.optimizers.groups import chosen, freeze, lines
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import GroupSection
from trainwright.stages.train.optimizer import Optimizers, assigned


def network_of():
    network = build_network(ModelSection(layers=2, width=16, heads=2, tied=False).spec(vocabulary=20))
    network.initialise(1)
    return network


def section_of(name, *groups, **keys):
    return TrainSection.model_validate({"optimizer": {"name": name, "groups": groups} | keys}).optimizer


GROUPS = (
    {"match": "blocks.0.*", "frozen": True},
    {"match": "*norm*", "lr": "x0.1"},
    {"match": "head*", "lr": 2e-3, "weight_decay": 0.5},
)


def test_the_first_pattern_that_matches_decides():
    groups = [GroupSection(**each) for each in GROUPS]
    names = ("blocks.0.ffn_norm.weight", "norm.weight", "head.weight", "embedding")
    assert [chosen(name, groups) for name in names] == [0, 1, 2, None]


@pytest.mark.parametrize("name", ["adamw", "muon", "lion", "contract.additions.optimizers:momentum"])
def test_each_group_steps_with_its_own_rate_and_frozen_parameters_stay(name):
    network = network_of()
    groups = GROUPS if "momentum" not in name else GROUPS[:2]
    section = section_of(name, *groups, lr=1e-2)
    freeze(network, section.groups)
    optimizers = Optimizers(network, section)
    before = {key: each.detach().clone() for key, each in network.named_parameters()}
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    after = dict(network.named_parameters())
    states = {key.rpartition(".")[0] for key, _ in optimizers.tensors()}
    for key, value in before.items():
        assert torch.equal(value, after[key]) == key.startswith("blocks.0."), key
        assert (key in states) != key.startswith("blocks.0."), key
    moved = float((before["norm.weight"] - after["norm.weight"].detach()).abs().max())
    assert moved == pytest.approx(1e-3, rel=1e-3), "a tenth of 1e-2, in the direction of a gradient of one"
    if len(groups) == 3:
        expected = before["head.weight"] * (1 - 2e-3 * 0.5) - 2e-3
        torch.testing.assert_close(after["head.weight"].detach(), expected, atol=1e-6, rtol=0)
        assert optimizers.peak_rates["train/lr/3"] == 2e-3
    assert optimizers.peak_rates["train/lr/2"] == pytest.approx(1e-3)
    assert optimizers.peak_rates["train/lr"] == 1e-2


def test_the_table_says_who_got_what():
    network = network_of()
    rows = assigned(network, section_of("muon", *GROUPS, lr=1e-2, weight_decay=0.2))
    found = {(row.match, row.rule, row.tensors, row.parameters, row.lr, row.weight_decay) for row in rows}
    block = 4 * 16 * 16 + 3 * 16 * 64
    assert found == {
        ("blocks.0.*", "", 9, block + 2 * 16, None, None),
        ("*norm*", "AdamW", 3, 3 * 16, 0.1 * 1e-2, 0.0),
        ("head*", "AdamW", 1, 20 * 16, 2e-3, 0.5),
        ("", "Muon", 7, block, 0.02, 0.0),
        ("", "AdamW", 1, 20 * 16, 1e-2, 0.2),
    }
    assert sum(row.parameters for row in rows) == sum(each.numel() for each in network.parameters())
    said = list(lines(rows))
    assert said[0] == "parameters 'blocks.0.*': 9 tensors of 4,128 numbers, frozen: no gradient, no state"
    assert "other parameters: 7 tensors of 4,096 numbers, Muon with a peak rate of 0.02, weight decay 0" in list(
        lines(rows)
    )


@pytest.mark.parametrize(
    ("groups", "where", "words"),
    [
        (({"match": "block.1.*", "frozen": True},), "0.match", r"nearest are blocks\.1\."),
        (({"match": "*", "lr": 1.0}, {"match": "head*", "lr": 1.0}), "1.match", "earlier groups come first"),
        (({"match": "*", "frozen": True},), "", "every parameter is frozen"),
    ],
)
def test_a_pattern_without_parameters_names_the_nearest(groups, where, words):
    with pytest.raises(RecipeError, match=words) as caught:
        freeze(network_of(), section_of("adamw", *groups).groups)
    assert caught.value.where == "train.optimizer.groups" + (f".{where}" if where else "")


def test_a_decay_is_refused_where_the_optimizer_has_none():
    class Bare(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

    from trainwright.model.optimizers.groups import regroup

    network = network_of()
    names = {parameter: name for name, parameter in network.named_parameters()}
    with pytest.raises(RecipeError, match="has no weight decay"):
        regroup(Bare(network.parameters()), names, [GroupSection(match="*", weight_decay=0.1)])
