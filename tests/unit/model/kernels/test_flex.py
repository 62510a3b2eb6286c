"""flex_attention's blocks beside those that torch finds in the whole matrix, and its gradients beside SDPA's."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from fixtures import compiled_kernels
from fixtures.flex import flex_on_processor
from fixtures.gradients import largest_difference
from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.cache import KVCache
from trainwright.model.kernels import flex
from trainwright.model.network import Network
from trainwright.model.tasks.next_token import NextToken
from trainwright.spec.workload import KernelChoice

CPU = torch.device("cpu")
TOKENS = 150
LISTS = ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks")


def documents_of(keys: int) -> torch.Tensor:
    """Documents of some tens to some hundreds of tokens, others in each of two sequences."""
    generator = torch.Generator().manual_seed(keys)
    return (torch.rand(2, keys, generator=generator) < 0.01).cumsum(dim=1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [None, 1, 100, 128, 300])
@pytest.mark.parametrize(("keys", "first"), [(40, 0), (384, 0), (500, 0), (512, 256), (700, 130)])
def test_blocks_are_those_that_torch_finds_in_the_whole_matrix(keys, first, masked, window) -> None:
    documents = documents_of(keys) if masked else None
    ours = flex.block_mask(documents, first=first, keys=keys, device=CPU, window=window)
    theirs = create_block_mask(ours.mask_mod, 2 if masked else None, None, keys - first, keys, device="cpu")
    assert ours.shape[-2:] == (keys - first, keys)
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for name in LISTS:
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("masked", [False, True])
def test_the_rule_inside_a_block_is_causality_the_window_and_the_document(masked, window) -> None:
    documents = documents_of(60) if masked else None
    rule = flex.block_mask(documents, first=20, keys=60, device=CPU, window=window).mask_mod
    for query in range(0, 40, 7):
        for key in range(60):
            for row in (0, 1):
                same = documents is None or bool(documents[row, 20 + query] == documents[row, key])
                seen = rule(*map(torch.tensor, (row, 0, query, key)))
                near = window is None or 20 + query - key < window
                assert bool(seen) == (key <= 20 + query and near and same)


def test_documents_whose_numbers_come_again_are_told_apart_all_the_same() -> None:
    documents = torch.tensor([[0, 1, 0, 2]]).repeat_interleave(128, dim=1)
    dense = flex.block_mask(documents, first=0, keys=512, device=CPU).to_dense()[0, 0]
    assert dense.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]


def network_of(family: str, kernel: str, **more: object) -> Network:
    kernels, shape = KernelChoice(attention=kernel), spec(family, context_tokens=TOKENS)
    network = build_network(shape, dtype=torch.float64, kernels=kernels, **more)
    network.initialise(4)
    return network.to(torch.float64)


def loss_and_gradients(network: Network, rows: int = 3, *, masked: bool) -> list[torch.Tensor]:
    tokens = torch.randint(2, 320, (rows, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    tokens[:, 17] = tokens[::2, 90] = tokens[:, 131] = 1
    task = NextToken(sequence_tokens=TOKENS, end_of_text=1 if masked else None)
    inputs = task.inputs(network, {"tokens": tokens})
    loss, _ = task.loss(network, task.hidden(network, inputs), inputs)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in network.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_gradients_are_those_of_sdpa(family, masked, recompute) -> None:
    truth = loss_and_gradients(network_of(family, "sdpa"), masked=masked)
    with flex_on_processor():
        found = loss_and_gradients(network_of(family, "flex", recompute=recompute), masked=masked)
    assert largest_difference(found, truth) < 1e-10


def test_compiled_code_has_the_same_gradients() -> None:
    """As an accelerator has it: the network as one, or block by block."""
    done = subprocess.run(
        [sys.executable, compiled_kernels.__file__, "flex"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal", done.stderr[-2000:]


def test_blocks_are_found_once_for_all_layers() -> None:
    with flex_on_processor(), patch.object(flex, "block_mask", wraps=flex.block_mask) as found:
        loss_and_gradients(network_of("llama", "flex"), masked=True)
    assert found.call_count == 1


@pytest.mark.parametrize("masked", [False, True])
def test_an_empty_micro_batch_has_gradients_of_nothing(masked) -> None:
    with flex_on_processor():
        loss, *gradients = loss_and_gradients(network_of("llama", "flex"), 0, masked=masked)
    assert float(loss) == 0
    assert gradients and not any(bool(gradient.any()) for gradient in gradients)


def test_torch_has_no_gradients_of_it_on_a_processor() -> None:
    """Why a processor is refused (``refusals.FLEX_KINDS``): where this fails, it need not be any more."""
    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(query, query, query)


def test_generation_attends_without_it() -> None:
    tokens, found = torch.arange(2, 14).view(1, -1), []
    for kernel in ("flex", "sdpa"):
        network = network_of("llama", kernel).eval()
        cache = KVCache(network.spec, slots=1, max_tokens=16, dtype=torch.float64, device=CPU)
        positions = torch.arange(12).view(1, -1)
        cache.select(torch.zeros(1, dtype=torch.long), positions)
        with torch.no_grad():
            found.append(network(tokens, positions=positions, cache=cache))
    assert torch.equal(*found)
