"""The effort of a measurement: the shapes of each kind of probe, and the seconds that may be spent on them.

The quick effort is bound by time: of each kind the first ``least`` entries are always measured, further ones while the
kind's share of the time lasts; entries stand in the order in which a plan needs them. The thorough effort measures all.
No shape is that of a recipe: the record belongs to the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from trainwright.core.units import MIB
from trainwright.spec.workload import Precision

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A network of ``layers`` blocks over ``sequences`` of ``sequence_tokens``."""

    family: str
    width: int
    ffn_width: int
    sequences: int
    sequence_tokens: int
    layers: int = 2
    head_size: int = 64


@dataclass(frozen=True, slots=True)
class Shapes(Generic[T]):
    """The shapes of one kind of probe.

    The first ``in_every`` shapes are measured in every precision, the others in the fastest alone.
    """

    shapes: tuple[T, ...]
    in_every: int = 0
    least: int = 0
    budget_s: float = math.inf

    def entries(self, dtypes: tuple[Precision, ...]) -> Iterator[tuple[T, Precision]]:
        """Shapes with their precisions until the time is up; the clock runs while the caller measures.

        Args:
            dtypes: the precisions, the fastest last.
        """
        begin = time.perf_counter()
        pairs = (
            (shape, dtype)
            for place, shape in enumerate(self.shapes)
            for dtype in (reversed(dtypes) if place < self.in_every else dtypes[-1:])
        )
        for place, pair in enumerate(pairs):
            if place >= self.least and time.perf_counter() - begin >= self.budget_s:
                return
            yield pair

    def alone(self) -> Iterator[T]:
        """Shapes that have no precision, until the time is up."""
        return (shape for shape, _ in self.entries(("fp32",)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """Everything that is measured on one kind of device.

    ``short_s`` and ``long_s`` are the times for all repetitions of one small call and of one whole pass. ``squares``
    are the sides of the products that the peak is taken from, ``linears`` (tokens, inputs, outputs), ``attentions``
    (sequences, heads, tokens, head size), ``losses`` (tokens, width, vocabulary), ``working_sets`` bytes of three
    arrays, ``updates`` parameters, ``matrices`` (rows, columns) of Muon. ``growth`` are pairs of one width at two
    depths: what grows with the depth is waste, the rest is temporary.
    """

    short_s: float
    long_s: float
    squares: Shapes[int]
    linears: Shapes[tuple[int, int, int]]
    blocks: Shapes[BlockShape]
    growth: Shapes[BlockShape]
    losses: Shapes[tuple[int, int, int]]
    attentions: Shapes[tuple[int, int, int, int]]
    working_sets: Shapes[int]
    updates: Shapes[int]
    matrices: Shapes[tuple[int, int]]
    disk_bytes: int


THOROUGH_CPU = Effort(
    short_s=0.03,
    long_s=0.3,
    squares=Shapes((1024, 2048, 512), in_every=3),
    linears=Shapes(
        (
            *((4096, 256, 768), (4096, 768, 256), (1024, 256, 256), (4096, 256, 256), (1024, 256, 1024)),
            *((2048, 512, 1536), (4096, 512, 512), (1024, 256, 4096)),
            *((2048, 768, 3072), (2048, 3072, 768), (512, 768, 32768), (2048, 2048, 2048)),
        ),
        in_every=8,
    ),
    blocks=Shapes(
        (
            BlockShape("llama", 256, 768, 4, 512),
            BlockShape("llama", 128, 384, 8, 256),
            BlockShape("llama", 512, 1408, 4, 512),
            BlockShape("llama", 256, 768, 16, 512),
            BlockShape("gpt2", 256, 1024, 4, 512),
        ),
        in_every=1,
    ),
    growth=Shapes(
        tuple(
            BlockShape("llama", width, 3 * width, 4, 512, depth)
            for width, depth in ((256, 2), (256, 8), (512, 2), (512, 6))
        )
    ),
    losses=Shapes(((2048, 256, 4096), (512, 512, 16384)), in_every=1),
    attentions=Shapes(
        ((4, 4, 512, 64), (8, 2, 256, 64), (2, 4, 1024, 64), (4, 2, 512, 128), (1, 4, 2048, 64)), in_every=5
    ),
    working_sets=Shapes((768 << 10, 3 * MIB, 12 * MIB, 48 * MIB, 192 * MIB)),
    updates=Shapes((1 << 20, 1 << 24)),
    matrices=Shapes(((128, 128), (384, 128), (192, 192), (576, 192), (256, 256), (768, 256), (512, 512), (1536, 512))),
    disk_bytes=64 * MIB,
)

QUICK_CPU = Effort(
    short_s=0.01,
    long_s=0.05,
    squares=Shapes((1024, 512), in_every=1, least=2, budget_s=0.1),
    linears=Shapes(
        (
            *((4096, 256, 768), (1024, 256, 256), (4096, 768, 256), (1024, 256, 4096)),
            *((1024, 256, 1024), (2048, 512, 1536), (2048, 768, 3072), (512, 768, 32768)),
        ),
        in_every=2,
        least=4,
        budget_s=0.4,
    ),
    blocks=Shapes(
        (
            BlockShape("llama", 256, 768, 2, 512),
            BlockShape("llama", 128, 384, 8, 256),
            BlockShape("llama", 512, 1408, 2, 512),
        ),
        in_every=1,
        least=1,
        budget_s=0.4,
    ),
    growth=Shapes(tuple(BlockShape("llama", 256, 768, 2, 512, depth) for depth in (2, 4))),
    losses=Shapes(((512, 256, 4096), (256, 256, 16384)), least=1, budget_s=0.1),
    attentions=Shapes(((4, 4, 512, 64), (8, 2, 256, 64), (2, 4, 1024, 64)), in_every=1, least=2, budget_s=0.2),
    working_sets=Shapes((3 * MIB, 48 * MIB, 768 << 10), least=2, budget_s=0.1),
    updates=Shapes((1 << 20, 1 << 23), least=1, budget_s=0.05),
    matrices=Shapes(((256, 256), (384, 384), (768, 256), (128, 128)), least=2, budget_s=0.1),
    disk_bytes=16 * MIB,
)

THOROUGH_CUDA = replace(
    THOROUGH_CPU,
    squares=Shapes((8192, 4096), in_every=2),
    linears=Shapes(
        (
            *((4096, 768, 768), (8192, 768, 3072), (8192, 3072, 768), (8192, 2048, 2048), (8192, 4096, 4096)),
            *((8192, 4096, 14336), (8192, 14336, 4096), (8192, 8192, 8192), (4096, 4096, 32768)),
        ),
        in_every=9,
    ),
    blocks=Shapes(
        (
            BlockShape("llama", 1024, 2816, 8, 1024),
            BlockShape("llama", 2048, 5632, 8, 1024, head_size=128),
            BlockShape("llama", 4096, 11008, 4, 2048, head_size=128),
            BlockShape("gpt2", 768, 3072, 8, 1024),
        ),
        in_every=1,
    ),
    growth=Shapes(
        tuple(
            BlockShape("llama", width, 3 * width, 8, 1024, depth)
            for width, depth in ((1024, 2), (1024, 8), (2048, 2), (2048, 6))
        )
    ),
    working_sets=Shapes((3 * MIB, 48 * MIB, 192 * MIB, 3072 * MIB)),
)

QUICK_CUDA = replace(
    THOROUGH_CUDA,
    short_s=0.01,
    long_s=0.05,
    squares=replace(THOROUGH_CUDA.squares, least=2, budget_s=0.2),
    linears=replace(THOROUGH_CUDA.linears, least=4, budget_s=0.8),
    blocks=replace(THOROUGH_CUDA.blocks, least=1, budget_s=0.5),
    losses=replace(THOROUGH_CUDA.losses, least=1, budget_s=0.1),
    attentions=replace(THOROUGH_CUDA.attentions, least=2, budget_s=0.2),
    matrices=replace(THOROUGH_CUDA.matrices, least=2, budget_s=0.2),
    disk_bytes=16 * MIB,
)
"""The same shapes while the time lasts."""


def effort(device_kind: str, *, thorough: bool) -> Effort:
    """Returns what is measured on such a device."""
    if device_kind != "cpu":
        return THOROUGH_CUDA if thorough else QUICK_CUDA
    return THOROUGH_CPU if thorough else QUICK_CPU
