"""What FlashAttention-3 is told, held by a package of its functions that torch computes: it was run on no hardware."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from fixtures import compiled_kernels, flash_attn_interface
from fixtures.gradients import largest_difference
from fixtures.tiny_models import spec
from trainwright.core.errors import MachineError
from trainwright.model.attention import attend, document_mask
from trainwright.model.build import build_network
from trainwright.model.kernels.flash3 import flash3, packed_documents
from trainwright.model.tasks.next_token import NextToken
from trainwright.spec.workload import KernelChoice

CPU = torch.device("cpu")
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 1, 1]])


@pytest.fixture(autouse=True)
def _package(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn_interface", flash_attn_interface)


def test_documents_lie_one_after_the_other() -> None:
    packed = packed_documents(DOCUMENTS)
    assert packed.keys.tolist() == packed.queries.tolist() == [0, 3, 4, 8, 14, 16]
    late = packed_documents(DOCUMENTS, first=5)
    assert late.keys.tolist() == [0, 3, 4, 8, 14, 16]
    assert late.queries.tolist() == [0, 0, 0, 3, 4, 6]


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_is_told_causality_scale_grouped_heads_and_documents(kv_heads, masked, first) -> None:
    generator = torch.Generator().manual_seed(1)
    sizes = ((4, 8 - first), (kv_heads, 8), (kv_heads, 8))
    leaves = [torch.randn(2, *size, 16, generator=generator, dtype=torch.float64) for size in sizes]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    documents = DOCUMENTS if masked else torch.zeros_like(DOCUMENTS)
    mask = document_mask(documents, torch.float64, first=first)
    kernel = flash3(documents if masked else None, first=first, keys=8, device=CPU)
    results = []
    for seen in (mask, kernel):
        mixed = attend(*leaves, seen, "math")
        results.append((mixed, *torch.autograd.grad(mixed.square().sum(), leaves)))
    for truth, found in zip(*results, strict=True):
        torch.testing.assert_close(found, truth, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_network_has_the_gradients_of_sdpa(family, masked) -> None:
    tokens = torch.randint(2, 320, (3, 41), generator=torch.Generator().manual_seed(0))
    tokens[:, 7] = tokens[::2, 30] = 1
    task, results = NextToken(sequence_tokens=40, end_of_text=1 if masked else None), []
    for kernel in ("sdpa", "fa3"):
        network = build_network(spec(family), dtype=torch.float64, kernels=KernelChoice(attention=kernel))
        network.initialise(2)
        network = network.to(torch.float64)
        inputs = task.inputs(network, {"tokens": tokens})
        loss, _ = task.loss(network, task.hidden(network, inputs), inputs)
        loss.backward()
        results.append([parameter.grad for parameter in network.parameters() if parameter.grad is not None])
    truth, found = results
    assert largest_difference(found, truth) < 1e-10


def test_compiled_code_ends_before_it_and_begins_again_behind_it() -> None:
    done = subprocess.run(
        [sys.executable, compiled_kernels.__file__, "fa3"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal", done.stderr[-2000:]


def test_it_computes_deterministically_where_torch_does(monkeypatch) -> None:
    told = []

    def attention(q, k, v, **how):
        told.append(how["deterministic"])
        return q, None  # earlier versions return a statistic beside what was mixed

    monkeypatch.setitem(sys.modules, "flash_attn_interface", SimpleNamespace(flash_attn_func=attention))
    query = torch.randn(1, 2, 4, 8)
    kernel = flash3(None, first=0, keys=4, device=CPU)
    assert torch.equal(kernel(query, query, query), query)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    kernel(query, query, query)
    assert told == [False, True]


def test_the_stand_in_has_the_packages_arguments_in_their_order() -> None:
    """Of the published signatures those before ``softmax_scale`` are given by place."""
    dense = list(inspect.signature(flash_attn_interface.flash_attn_func).parameters)
    packed = list(inspect.signature(flash_attn_interface.flash_attn_varlen_func).parameters)
    assert dense[:5] == ["q", "k", "v", "softmax_scale", "causal"]
    assert packed[3:7] == ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]


@pytest.mark.parametrize("documents", [None, DOCUMENTS[:0]])
def test_an_empty_micro_batch_is_not_shown_to_it(documents) -> None:
    query = torch.randn(0, 4, 8, 16, requires_grad=True)
    mixed = flash3(documents, first=0, keys=8, device=CPU)(query, query[:, :2], query[:, :2])
    assert mixed.shape == query.shape
    mixed.sum().backward()


def test_a_package_that_is_not_there_is_named_with_what_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn_interface", None)
    with pytest.raises(MachineError, match=r"train\.exec\.attention: .*pip install .*subdirectory=hopper.*=sdpa"):
        flash3(None, first=0, keys=8, device=CPU)
