"""Loads, biases and what is reported, around one update of a whole network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.build import build_network
from trainwright.model.experts.balance import sequence_loss
from trainwright.model.experts.update import MEAN, OF_RANKS, WORST, mixtures
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.parts.experts import Experts
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

CPU = torch.device("cpu")
EXPERTS = Experts(count=5, active=2, ffn_width=16, dense_layers=1, loss_weight=0.2)


def step_of(tiny, *, micro_batch: int = 2, recompute="none", **different) -> TrainingStep:
    spec = replace(tiny.spec("llama"), experts=replace(EXPERTS, **different))
    network = build_network(spec, dtype=torch.float64, recompute=recompute).double()
    network.initialise(3)
    clock = PhaseClock(CPU)
    clock.start()
    task, optimizers = NextToken(sequence_tokens=12), Optimizers(network, AdamWSection())
    return TrainingStep(task, network, optimizers, clock, micro_batch=micro_batch, clip_norm=None, compiled=False)


def batch(sequences: int = 5) -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 320, (sequences, 13), generator=torch.Generator().manual_seed(1))
    tokens[0, 4:] = -100  # most of this sequence has no targets, and counts as one sequence all the same
    return {"tokens": tokens}


def chosen(step: TrainingStep, given: dict[str, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Returns of each layer how many tokens each expert gets, by a hook on its router."""
    counts: dict[int, torch.Tensor] = {}
    hooks = [
        mixture.router.register_forward_hook(
            lambda module, x, routing, layer=layer: counts.update(
                {layer: torch.bincount(routing.chosen.flatten(), minlength=5)}
            )
        )
        for layer, mixture in mixtures(step.network).items()
    ]
    with torch.no_grad():
        step.network(step.inputs(given)["tokens"])
    for hook in hooks:
        hook.remove()
    return counts


@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_the_gradient_is_that_of_mean_loss_and_mean_balance_loss(tiny, micro_batch, recompute):
    step, given = step_of(tiny, micro_batch=micro_batch, recompute=recompute, z_weight=0.05), batch()
    loss, weight = step.gradient(given)
    ours = {name: parameter.grad for name, parameter in step.network.named_parameters()}
    network = step_of(tiny, z_weight=0.05).network
    losses: list[torch.Tensor] = []
    for mixture in mixtures(network).values():
        mixture.router.register_forward_hook(
            lambda module, x, routing: losses.append(sequence_loss(routing, module.experts, sequences=5).mean())
        )
    inputs = step.inputs(given)
    logits = network.logits(network(inputs["tokens"])).flatten(0, 1)
    summed = F.cross_entropy(logits, inputs["targets"].flatten(), ignore_index=-100, reduction="sum")
    assert loss.item() / weight.item() == pytest.approx(summed.item() / weight.item(), rel=1e-6)
    network = network.double()
    (summed / weight + sum(losses)).backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=0, atol=1e-7, msg=name)


def test_a_frozen_router_is_not_balanced(tiny):
    given = batch()
    step = step_of(tiny, balance="bias", bias_rate=0.5, z_weight=0.05)
    plain = step_of(tiny, balance="bias", loss_weight=0.0)
    for each in (step, plain):
        for mixture in mixtures(each.network).values():
            mixture.router.requires_grad_(False)
        each.gradient(given)
    ours, theirs = (dict(each.network.named_parameters()) for each in (step, plain))
    for name in ours:
        assert (ours[name].grad is None) == ("router" in name)
        if "router" not in name:
            assert torch.equal(ours[name].grad, theirs[name].grad), name
    update = step(given, 1.0)
    assert all(not mixture.router.correction.any() for mixture in mixtures(step.network).values())
    assert float(update.beside[MEAN]) > 1, "loads are counted all the same"


def test_biases_follow_the_load_of_the_whole_update(tiny):
    step, given = step_of(tiny, balance="bias", bias_rate=0.5), batch()
    counts = chosen(step, given)
    update = step(given, 1.0)
    for layer, mixture in mixtures(step.network).items():
        expected = 0.5 * torch.sign(counts[layer].float().mean() - counts[layer])
        assert mixture.router.correction.tolist() == expected.tolist()
    uneven = [float(count.max() / count.float().mean()) for count in counts.values()]
    assert float(update.beside[MEAN]) == pytest.approx(sum(uneven) / len(uneven))
    assert float(update.beside[WORST]) == pytest.approx(max(uneven))


def test_the_load_of_ranks_is_that_of_their_experts_together(tiny):
    step, given = step_of(tiny, count=4), batch()
    found = [counts[:4].view(2, 2).sum(1) for counts in chosen(step, given).values()]
    uneven = [float(counts.max() / counts.double().mean()) for counts in found]
    step.network.expert_ranks = 2
    assert float(step(given, 0.0).beside[OF_RANKS]) == pytest.approx(sum(uneven) / len(uneven))
    step.network.expert_ranks = 1
    assert OF_RANKS not in step(given, 0.0).beside


def test_an_update_that_is_left_out_moves_no_bias(tiny):
    step = step_of(tiny, balance="bias")
    step.before_update(batch())
    step.gradient(batch())
    step.network.after_update(step.summed_up, made=False)
    assert not any(mixture.router.correction.any() for mixture in mixtures(step.network).values())


def test_bias_balancing_evens_the_load(tiny):
    """One expert is far ahead of all others at first."""
    step = step_of(tiny, balance="bias", bias_rate=0.05, loss_weight=0.0)
    for mixture in mixtures(step.network).values():
        mixture.router.correction.copy_(torch.tensor([1.0, 0, 0, 0, 0]))
    loads = [float(step(batch(), 0.0).beside[MEAN]) for _ in range(40)]
    assert loads[0] == pytest.approx(2.5)
    assert sum(loads[-5:]) / 5 < 1.7


def test_dense_networks_report_nothing(tiny):
    spec = tiny.spec("llama")
    network = build_network(spec)
    network.before_update(torch.ones(()))
    network.counts_sequences(1)
    assert network.after_update(lambda value: value, made=True) == {}
    assert dict(network.stored()) == dict(network.named_parameters())
