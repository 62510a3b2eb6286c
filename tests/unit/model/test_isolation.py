"""What a token's logits follow from: earlier tokens of its own document, with every implementation of attention.

One token is changed, and what may not follow from it is the same to the bit, in the forward pass of training and of
evaluation alike.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from fixtures import flash_attn_interface
from fixtures.flex import flex_on_processor
from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.next_token import NextToken
from trainwright.spec.workload import KernelChoice

END = 1
TOKENS = 40
BOUNDS = (0, 13, 14, 29, TOKENS)
"""Where documents begin; one has a single token."""
CHANGED = (3, 13, 20, 28, 39)


@pytest.fixture(params=["llama", "gpt2"])
def family(request) -> str:
    return request.param


@pytest.fixture(params=["math", "sdpa", "auto", "flex", "fa3"])
def kernel(request, monkeypatch) -> Iterator[str]:
    monkeypatch.setitem(sys.modules, "flash_attn_interface", flash_attn_interface)
    with flex_on_processor() if request.param == "flex" else nullcontext():
        yield request.param


def network_of(family: str, kernel: str, dtype: torch.dtype = torch.float32) -> Network:
    network = build_network(spec(family), dtype=dtype, kernels=KernelChoice(attention=kernel))
    network.initialise(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    return network


def tokens_of() -> Tensor:
    tokens = torch.randint(2, 320, (2, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    tokens[:, list(BOUNDS[:-1])] = END
    return tokens


def logits(network: Network, tokens: Tensor, *, masked: bool) -> Tensor:
    task = NextToken(sequence_tokens=TOKENS, end_of_text=END if masked else None)
    return network.logits(task.hidden(network, task.inputs(network, {"tokens": tokens})))


def changed(tokens: Tensor, place: int) -> Tensor:
    """Another token at a place of both sequences, and no other documents."""
    other = tokens.clone()
    other[:, place] = 2 + (tokens[:, place] + 100) % 318
    return other


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_other_document_and_no_earlier_token_sees_a_change(family, kernel, dtype, training) -> None:
    network, tokens = network_of(family, kernel, dtype), tokens_of()
    with torch.set_grad_enabled(training):
        before = logits(network, tokens, masked=True)
        for place in (place for place in CHANGED if place not in BOUNDS):
            after = logits(network, changed(tokens, place), masked=True)
            end = min(bound for bound in BOUNDS if bound > place)
            assert torch.equal(after[:, :place], before[:, :place]), "an earlier token saw it"
            assert torch.equal(after[:, end:], before[:, end:]), "another document saw it"
            assert bool((after[:, place:end] != before[:, place:end]).any(dim=-1).all()), "its own document must see it"


def test_without_documents_every_later_token_sees_a_change_and_no_earlier_one(family, kernel) -> None:
    network, tokens = network_of(family, kernel), tokens_of()
    before = logits(network, tokens, masked=False)
    for place in CHANGED:
        after = logits(network, changed(tokens, place), masked=False)
        assert torch.equal(after[:, :place], before[:, :place])
        assert bool((after[:, place:] != before[:, place:]).any(dim=-1).all())


def test_positions_begin_anew_with_each_document(family, kernel) -> None:
    """A document's logits do not follow from where it stands: two documents change places."""
    network, tokens = network_of(family, kernel, torch.float64).to(torch.float64), tokens_of()[:, :-1]
    first, second = tokens[:, BOUNDS[0] : BOUNDS[1]], tokens[:, BOUNDS[2] : BOUNDS[3]]
    end = torch.full((2, 1), END)
    one = logits(network, torch.cat((first, second, end), dim=1), masked=True)
    other = logits(network, torch.cat((second, first, end), dim=1), masked=True)
    size = first.shape[1]
    torch.testing.assert_close(one[:, :size], other[:, -size:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one[:, size:], other[:, : second.shape[1]], atol=1e-5, rtol=1e-5)


def test_a_label_that_is_ignored_gives_no_gradient(family, kernel) -> None:
    """Targets behind a token are missing: what that token and those after it are changes no gradient, to the bit."""
    network, task = network_of(family, kernel), NextToken(sequence_tokens=TOKENS)
    inputs = task.inputs(network, {"tokens": tokens_of()})
    targets = inputs["targets"].clone()
    targets[:, 25:] = IGNORE
    hidden = task.hidden(network, inputs)
    kept = hidden.detach().requires_grad_()
    loss, weight = task.loss(network, kept, {**inputs, "targets": targets})
    loss.backward()
    assert int(weight) == 2 * 25
    assert not bool(kept.grad[:, 25:].any())
    assert bool(kept.grad[:, :25].any(dim=-1).all())
    network.zero_grad()
    loss, weight = task.loss(network, hidden, {**inputs, "targets": torch.full_like(targets, IGNORE)})
    loss.backward()
    assert float(loss.detach()) == int(weight) == 0
    assert all(parameter.grad is None or not bool(parameter.grad.any()) for parameter in network.parameters())
