"""Times the real network and the real loss at a few fixed sizes.

A matrix product's time follows from its shape; what stands between the products (norms, rotations, casts, residual
sums, allocation) follows from the code. So the code itself is timed, at widths and lengths that no recipe chose, and
the planner carries what it learns over to the recipe's own sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from trainwright.hardware.machine.probes import BlockProbe, GrowthProbe, LossProbe, MuonProbe
from trainwright.model.attention import attend
from trainwright.model.build import build_network
from trainwright.model.losses import linear_cross_entropy
from trainwright.model.muon import Muon
from trainwright.model.network import Network
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import device_bytes, reset_peak
from trainwright.runtime.timing.stopwatch import Stopwatch
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import Precision
from trainwright.stages.doctor.effort import BlockShape

VOCABULARY = 512
MUON_COUNT = 12
"""Matrices of one shape that Muon is timed on together."""


def model_spec(stack: BlockShape) -> ModelSpec:
    """Returns the network of a stack."""
    section = ModelSection(
        family=stack.family,
        layers=stack.layers,
        width=stack.width,
        heads=stack.width // stack.head_size,
        head_size=stack.head_size,
        ffn_width=stack.ffn_width,
        context_tokens=stack.sequence_tokens,
        tied=True,
    )
    return section.spec(vocabulary=VOCABULARY)


def probe_blocks(watch: Stopwatch, entries: Iterable[tuple[BlockShape, Precision]]) -> Iterator[BlockProbe]:
    """Forward and backward of each stack, from tokens to hidden states."""
    for stack, dtype in entries:
        spec = model_spec(stack)
        tokens = torch.randint(0, VOCABULARY, (stack.sequences, stack.sequence_tokens), device=watch.device)
        forward, backward = watch.rounds(*_passes(_network(spec, watch.device, dtype), tokens))
        yield BlockProbe(
            model=spec,
            dtype=dtype,
            sequences=stack.sequences,
            sequence_tokens=stack.sequence_tokens,
            forward=forward,
            backward=backward,
        )


def _passes(model: Network, tokens: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """Returns a forward pass, and the backward pass of the last one."""
    hidden = model(tokens)
    grad = torch.randn_like(hidden)

    def forward() -> None:
        nonlocal hidden
        model.zero_grad(set_to_none=True)
        hidden = model(tokens)

    return forward, lambda: hidden.backward(grad)


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as the network computes it, without a mask of documents."""
    return attend(query, key, value, None)


NOT_COUNTED = (0, 0, 0)
"""Of a device whose memory torch does not count: a plan then goes by the parts that it knows."""


def _allocated_bytes(device: torch.device) -> int:
    return (device_bytes(device) or NOT_COUNTED)[0]


def _peak_bytes(device: torch.device) -> int:
    return (device_bytes(device) or NOT_COUNTED)[1]


def probe_growth(device: torch.device, entries: Iterable[tuple[BlockShape, str]]) -> Iterator[GrowthProbe]:
    """Yields the bytes that each stack's forward and backward add to the process, which should be a fresh one."""
    for stack, dtype in entries:
        spec = model_spec(stack)
        model = _network(spec, device, dtype)
        tokens = torch.zeros(stack.sequences, stack.sequence_tokens, device=device, dtype=torch.long)
        reset_peak(device)
        before = _allocated_bytes(device)
        for _ in range(2):
            model(tokens).sum().backward()
            model.zero_grad(set_to_none=True)
        yield GrowthProbe(
            model=spec,
            dtype=dtype,
            sequences=stack.sequences,
            sequence_tokens=stack.sequence_tokens,
            grown_bytes=max(0, _peak_bytes(device) - before),
        )


def probe_losses(watch: Stopwatch, entries: Iterable[tuple[tuple[int, int, int], str]]) -> Iterator[LossProbe]:
    """Cross-entropy with its projection and gradient, for (tokens, width, vocabulary) and precision."""
    for (tokens, width, vocabulary), dtype in entries:
        hidden = torch.randn(tokens, width, device=watch.device, dtype=DTYPES[dtype], requires_grad=True)
        # Small, as a network's are: large logits would make gradients too small for normal numbers.
        weight = torch.randn(vocabulary, width, device=watch.device).mul_(0.02).requires_grad_()
        targets = torch.randint(0, vocabulary, (tokens,), device=watch.device)
        timing = watch.time(partial(linear_cross_entropy, hidden, weight, targets))
        yield LossProbe(dtype=dtype, tokens=tokens, width=width, vocabulary=vocabulary, timing=timing)


def probe_muon(watch: Stopwatch, matrices: Iterable[tuple[int, int]]) -> Iterator[MuonProbe]:
    """Yields one Muon update of each (rows, columns), over so many matrices that a cache does not hold them."""
    for rows, columns in matrices:
        leaves = [torch.randn(rows, columns, device=watch.device).requires_grad_() for _ in range(MUON_COUNT)]
        for leaf in leaves:
            leaf.grad = torch.randn_like(leaf)
        timing = watch.time(Muon(leaves, lr=1e-3, momentum=0.95, weight_decay=0.0).step)
        yield MuonProbe(rows=rows, columns=columns, timing=timing.divided(len(leaves)))


def _network(spec: ModelSpec, device: torch.device, dtype: str) -> Network:
    network = build_network(spec, dtype=DTYPES[dtype]).to(device)
    network.initialise(0)
    return network
