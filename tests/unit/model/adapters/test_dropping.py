"""What adapters do not see in training: which elements, whose gradient, what is kept, and that a pass repeats it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fixtures import tiny_models
from trainwright.core.errors import RecipeError
from trainwright.model.adapters.attach import adapted_layers, attach, drop_inputs, initialise
from trainwright.model.adapters.dropping import SITES, product_without
from trainwright.model.dropout import BRANCH, Draw, Dropouts, kept, sample_keys
from trainwright.model.tasks.next_token import NextToken
from trainwright.planner.counts.adapters import placed
from trainwright.spec.parts.adaptation import LowRank
from trainwright.spec.parts.dropout import Dropout

RATE, LAYER = 0.4, 7
DRAW = Draw(Dropouts(Dropout(), 2), sample_keys(3, 5, range(4)), torch.arange(10, 16))


@pytest.fixture
def x():
    return torch.randn(4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)


@pytest.fixture
def a():
    return torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)


def test_it_is_the_product_of_what_stays(x, a) -> None:
    stays = kept(DRAW.samples, SITES + LAYER, RATE, DRAW.places, torch.arange(8))
    assert 0 < int(stays.sum()) < stays.numel()
    ours, truth = product_without(x, a, DRAW, layer=LAYER, rate=RATE), F.linear(x * stays / (1 - RATE), a)
    torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(truth)
    for mine, theirs in zip(
        torch.autograd.grad(ours, (x, a), weights), torch.autograd.grad(truth, (x, a), weights), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_the_input_is_kept_as_it_is(x, a) -> None:
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each) or each, lambda each: each):
        product_without(x, a, DRAW, layer=LAYER, rate=RATE)
    large = [each for each in saved if each.numel() >= x.numel()]
    assert [each.data_ptr() for each in large] == [x.data_ptr()]


def test_layers_of_any_network_have_sites_of_their_own() -> None:
    assert BRANCH + 4 * 10_000 < SITES < SITES + 100 * 10_000 < 2**32


def trained(method="lora", *, rate=RATE, recompute="none", family="llama"):
    network = tiny_models.decoder(family, recompute=recompute)
    modules = dict.fromkeys(placed(network.spec, ["all-linear"]), LowRank(rank=3, scale=0.5))
    attach(network, modules, magnitude=method == "dora")
    initialise(network, 4)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    if rate:
        drop_inputs(network, rate)
    return network.train()


def gradients(network, rows=range(4), step=0):
    tokens = torch.randint(0, network.spec.vocabulary, (4, 17), generator=torch.Generator().manual_seed(6))
    batch = {"tokens": tokens[rows.start : rows.stop], "samples": sample_keys(9, step, rows)}
    task = NextToken(sequence_tokens=16, end_of_text=None)
    network.zero_grad()
    inputs = task.inputs(network, batch)
    loss, _ = task.loss(network, task.hidden(network, inputs), inputs)
    loss.backward()
    return loss.item(), {name: each.grad.clone() for name, each in network.trained().items()}


@pytest.mark.parametrize("method", ["lora", "dora"])
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_a_pass_that_is_made_again_drops_the_same(recompute, method) -> None:
    loss, truth = gradients(trained(method))
    again, found = gradients(trained(method, recompute=recompute))
    assert again == loss
    for name, each in truth.items():
        torch.testing.assert_close(found[name], each, rtol=0, atol=0)
    assert loss != gradients(trained(method, rate=0))[0]
    assert loss != gradients(trained(method), step=1)[0]


def test_micro_batches_drop_what_the_batch_does() -> None:
    _, whole = gradients(trained())
    parts = [gradients(trained(), rows)[1] for rows in (range(1), range(1, 4))]
    for name, each in whole.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], each, rtol=1e-4, atol=1e-5)


def test_outside_training_nothing_is_dropped() -> None:
    tokens = torch.arange(12).view(1, 12)
    network = trained().eval()
    with torch.no_grad():
        assert torch.equal(network(tokens), trained(rate=0).eval()(tokens))
    gradients(network.train())
    with torch.no_grad():
        assert torch.equal(network.eval()(tokens), trained(rate=0).eval()(tokens)), "after a pass that trained too"


def test_each_layer_draws_its_own() -> None:
    numbers = [factors.drops[0] for _, layer in adapted_layers(trained()) for factors in layer.adapters.values()]
    assert len(set(numbers)) == len(numbers) > 2


def test_a_training_pass_without_keys_is_refused() -> None:
    with pytest.raises(RecipeError, match="keys of a batch's sequences"):
        trained()(torch.arange(12).view(1, 12))
