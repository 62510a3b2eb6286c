"""Times the real network and the real loss at a few fixed sizes.

A matrix product's time follows from its shape; what stands between the products (norms, rotations, casts, residual
sums, allocation) follows from the code. So the code itself is timed, at widths and lengths that no recipe chose, and
the planner carries what it learns over to the recipe's own sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainwright.hardware.probes import BlockProbe, GrowthProbe, LossProbe, MuonProbe
from trainwright.model.attention import attend
from trainwright.model.decoder import Decoder
from trainwright.model.losses import linear_cross_entropy
from trainwright.model.muon import Muon
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import peak_resident_bytes, reset_peak, resident_bytes
from trainwright.runtime.stopwatch import Stopwatch
from trainwright.spec.model import ModelSpec

VOCABULARY = 512
MUON_MATRICES = ((128, 128), (384, 128), (192, 192), (576, 192), (256, 256), (768, 256), (512, 512), (1536, 512))
"""(rows, columns) of the matrices that Muon is timed on."""
MUON_COUNT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A stack of ``layers`` blocks over ``sequences`` of ``sequence_tokens``."""

    family: str
    width: int
    ffn_width: int
    sequences: int
    sequence_tokens: int
    layers: int = 2
    head_size: int = 64


CPU_SHAPES = (
    Shape(family="llama", width=256, ffn_width=768, sequences=4, sequence_tokens=512),
    Shape(family="llama", width=128, ffn_width=384, sequences=8, sequence_tokens=256),
    Shape(family="llama", width=512, ffn_width=1408, sequences=4, sequence_tokens=512),
    Shape(family="llama", width=256, ffn_width=768, sequences=16, sequence_tokens=512),
    Shape(family="gpt2", width=256, ffn_width=1024, sequences=4, sequence_tokens=512),
)
CUDA_SHAPES = (
    Shape(family="llama", width=1024, ffn_width=2816, sequences=8, sequence_tokens=1024),
    Shape(family="llama", width=2048, ffn_width=5632, sequences=8, sequence_tokens=1024, head_size=128),
    Shape(family="llama", width=4096, ffn_width=11008, sequences=4, sequence_tokens=2048, head_size=128),
    Shape(family="gpt2", width=768, ffn_width=3072, sequences=8, sequence_tokens=1024),
)
CPU_GROWTH = tuple(
    Shape(family="llama", width=width, ffn_width=3 * width, sequences=4, sequence_tokens=512, layers=layers)
    for width, layers in ((256, 2), (256, 8), (512, 2), (512, 6))
)
CUDA_GROWTH = tuple(
    Shape(family="llama", width=width, ffn_width=3 * width, sequences=8, sequence_tokens=1024, layers=layers)
    for width, layers in ((1024, 2), (1024, 8), (2048, 2), (2048, 6))
)
"""Pairs of one width at two depths: what grows with the depth is waste, what does not is temporary."""
LOSSES = ((2048, 256, 4096), (512, 512, 16384))
"""(tokens, width, vocabulary) of the loss probes."""


def shapes(device: torch.device) -> tuple[Shape, ...]:
    """The stacks that are timed on such a device; the first one is also timed in other precisions."""
    return CUDA_SHAPES if device.type == "cuda" else CPU_SHAPES


def model_spec(shape: Shape) -> ModelSpec:
    """The network of a shape."""
    llama = shape.family == "llama"
    heads = shape.width // shape.head_size
    return ModelSpec(
        family=shape.family, layers=shape.layers, width=shape.width, heads=heads, kv_heads=heads,
        head_size=shape.head_size, ffn_width=shape.ffn_width, vocabulary=VOCABULARY,
        context_tokens=shape.sequence_tokens, tied=True, gated=llama, norm="rmsnorm" if llama else "layernorm",
        norm_epsilon=1e-5, positions="rope" if llama else "learned", rope_theta=10000.0, bias=not llama,
        activation="silu" if llama else "gelu_tanh",
    )  # fmt: skip


def probe_block(watch: Stopwatch, shape: Shape, *, dtype: str) -> BlockProbe:
    """Forward and backward of one stack, from tokens to hidden states."""
    spec = model_spec(shape)
    model = Decoder(spec).to(watch.device)
    model.initialise(0)
    model.compute_dtype = DTYPES[dtype]
    tokens = torch.randint(0, VOCABULARY, (shape.sequences, shape.sequence_tokens), device=watch.device)
    hidden = model(tokens)
    grad = torch.randn_like(hidden)
    hidden.backward(grad)

    def forward() -> None:
        nonlocal hidden
        model.zero_grad(set_to_none=True)
        hidden = model(tokens)

    return BlockProbe(
        model=spec, dtype=dtype, sequences=shape.sequences, sequence_tokens=shape.sequence_tokens,
        forward=watch.time(forward), backward=watch.time(lambda: hidden.backward(grad), prepare=forward),
    )  # fmt: skip


def probe_blocks(watch: Stopwatch, dtypes: tuple[str, ...]) -> Iterator[BlockProbe]:
    """Every shape in the last of ``dtypes`` (the fastest), the first shape in all of them."""
    known = shapes(watch.device)
    for dtype in dtypes:
        for shape in known if dtype == dtypes[-1] else known[:1]:
            yield probe_block(watch, shape, dtype=dtype)


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as the network computes it, without a mask of documents."""
    return attend(query, key, value, None)


def _held_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_bytes()


def _peak_bytes(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_resident_bytes()


def probe_growth(device: torch.device, dtype: str) -> Iterator[GrowthProbe]:
    """What two widths at two depths each add to the process, which should be a fresh one."""
    for shape in CUDA_GROWTH if device.type == "cuda" else CPU_GROWTH:
        spec = model_spec(shape)
        model = Decoder(spec).to(device)
        model.initialise(0)
        model.compute_dtype = DTYPES[dtype]
        tokens = torch.zeros(shape.sequences, shape.sequence_tokens, device=device, dtype=torch.long)
        reset_peak(device)
        before = _held_bytes(device)
        for _ in range(2):
            model(tokens).sum().backward()
            model.zero_grad(set_to_none=True)
        yield GrowthProbe(
            model=spec, dtype=dtype, sequences=shape.sequences, sequence_tokens=shape.sequence_tokens,
            grown_bytes=max(0, _peak_bytes(device) - before),
        )  # fmt: skip


def probe_losses(watch: Stopwatch, dtypes: tuple[str, ...]) -> Iterator[LossProbe]:
    """Cross-entropy with its projection and gradient."""
    for tokens, width, vocabulary in LOSSES:
        for dtype in dtypes if (tokens, width, vocabulary) == LOSSES[0] else dtypes[-1:]:
            hidden = torch.randn(tokens, width, device=watch.device, dtype=DTYPES[dtype], requires_grad=True)
            # Small, as a network's are: large logits would make gradients too small for normal numbers.
            weight = torch.randn(vocabulary, width, device=watch.device).mul_(0.02).requires_grad_()
            targets = torch.randint(0, vocabulary, (tokens,), device=watch.device)
            call = lambda h=hidden, w=weight, t=targets: linear_cross_entropy(h, w, t)  # noqa: E731
            yield LossProbe(dtype=dtype, tokens=tokens, width=width, vocabulary=vocabulary, timing=watch.time(call))


def probe_muon(watch: Stopwatch) -> Iterator[MuonProbe]:
    """One Muon update of each shape, over so many matrices that a cache does not hold them."""
    for rows, columns in MUON_MATRICES:
        leaves = [torch.randn(rows, columns, device=watch.device).requires_grad_() for _ in range(MUON_COUNT)]
        for leaf in leaves:
            leaf.grad = torch.randn_like(leaf)
        optimizer = Muon(leaves, lr=1e-3, momentum=0.95, weight_decay=0.0)
        whole = watch.time(optimizer.step)
        timing = replace(
            whole, **{name: getattr(whole, name) / len(leaves) for name in ("median_s", "low_s", "high_s")}
        )
        yield MuonProbe(rows=rows, columns=columns, timing=timing)
