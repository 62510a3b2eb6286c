"""How fast a device does each kind of work: from the doctor's measurements, or from a datasheet.

Both kinds answer the same questions, so that one step-time model serves this machine and a rented one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from trainwright.hardware.probes import BlockProbe, MatmulPass, Probes
from trainwright.planner.parameters import block_matrices
from trainwright.planner.traffic import block_traffic
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec

DATASHEET_MATMUL = 0.70
"""Share of a datasheet's dense peak that large matrix products reach. Measured maxima are 0.73 (GB200), 0.78 (B200),
0.80 (H100) and 0.87 (A100): stas00/ml-engineering@744d01e, compute/accelerator/README.md (MAMF); layers are smaller."""
DATASHEET_BANDWIDTH = 0.80
"""Share of a datasheet's memory bandwidth that streaming kernels reach (BabelStream on NVIDIA data-centre GPUs:
0.8-0.95)."""
DATASHEET_LAUNCH_S = 6e-6
"""Seconds that a framework needs to launch one GPU kernel without graphs; smaller kernels than that wait for the
next."""
_PASSES_OVER_COUNT = 2.0
"""Bytes an eager framework really moves for each byte of ``planner.traffic``'s count: statistics and casts in fp32."""

COMPILED_REST = 0.6
"""What torch.compile leaves of the time between products: on a 2-layer Llama stack in bf16 the blocks took 103 ms
instead
of 144 ms, their products alone about 40 ms (docs/lab/log.md)."""
P = TypeVar("P")


class Rates(Protocol):
    """Seconds of each kind of work on one device."""

    def matmul_s(self, direction: MatmulPass, *, tokens: int, inputs: int, outputs: int, dtype: str) -> float:
        """One product of a linear layer."""

    def attention_s(
        self, *, sequences: int, heads: int, tokens: int, head_size: int, dtype: str, backward: bool
    ) -> float:
        """Causal attention of one layer."""

    def blocks_rest_s(self, model: ModelSpec, *, tokens: int, dtype: str, backward: bool) -> float:
        """Everything in the blocks that is neither a linear layer nor attention."""

    def loss_rest_s(self, *, tokens: int, vocabulary: int, dtype: str) -> float:
        """Softmax, loss and its gradient without the products."""

    def stream_s(self, moved_bytes: float, *, pieces: int = 1) -> float:
        """Reading and writing so many bytes, in so many tensors one after the other."""

    def adamw_s(self, parameters: int) -> float:
        """One AdamW update, clipping included."""

    def muon_s(self, rows: int, columns: int) -> float:
        """One Muon update of one matrix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Datasheet:
    """Rates from a datasheet: each operation is bound by arithmetic, by memory or by its launch."""

    device: DeviceSpec

    def matmul_s(self, direction: MatmulPass, *, tokens: int, inputs: int, outputs: int, dtype: str) -> float:
        """Roofline (Williams et al., 2009) over ``DATASHEET_MATMUL`` of the peak; every direction alike."""
        del direction
        size = 4 if dtype == "fp32" else 2
        moved = size * (tokens * inputs + inputs * outputs + tokens * outputs)
        return max(2 * tokens * inputs * outputs / self._flops_per_s(dtype), self.stream_s(moved), DATASHEET_LAUNCH_S)

    def attention_s(
        self, *, sequences: int, heads: int, tokens: int, head_size: int, dtype: str, backward: bool
    ) -> float:
        """Skips masked blocks, at half the rate of a product; its backward pass makes 2.5 times as many."""
        flops = 2.0 * sequences * heads * tokens**2 * head_size * (2.5 if backward else 1.0)
        return max(flops / (0.5 * self._flops_per_s(dtype)), DATASHEET_LAUNCH_S)

    def blocks_rest_s(self, model: ModelSpec, *, tokens: int, dtype: str, backward: bool) -> float:
        """Traffic at streaming bandwidth, or one launch each, whichever is longer."""
        traffic = block_traffic(model, tokens=tokens, dtype=dtype)
        moved = traffic.backward_bytes if backward else traffic.forward_bytes
        operations = traffic.backward_operations if backward else traffic.forward_operations
        return max(self.stream_s(_PASSES_OVER_COUNT * moved + traffic.cast_bytes), operations * DATASHEET_LAUNCH_S)

    def loss_rest_s(self, *, tokens: int, vocabulary: int, dtype: str) -> float:
        """Six passes over fp32 logits: cast, softmax (2), gradient (2), cast."""
        del dtype
        return self.stream_s(6 * 4 * tokens * vocabulary)

    def stream_s(self, moved_bytes: float, *, pieces: int = 1) -> float:
        """Bytes over ``DATASHEET_BANDWIDTH`` of the printed bandwidth."""
        least_s = pieces * DATASHEET_LAUNCH_S if moved_bytes else 0.0
        return max(moved_bytes / (DATASHEET_BANDWIDTH * self.device.bytes_per_s), least_s)

    def adamw_s(self, parameters: int) -> float:
        """Reads four numbers and writes three for each parameter (28 bytes); clipping reads two and writes one."""
        return self.stream_s(40.0 * parameters)

    def muon_s(self, rows: int, columns: int) -> float:
        """Five Newton-Schulz iterations in bf16 (Jordan et al., 2024), and four passes over fp32 state."""
        dtype = "bf16" if "bf16" in self.device.flops_per_s else "fp32"
        return max(muon_flops(rows, columns) / self._flops_per_s(dtype), 20 * DATASHEET_LAUNCH_S) + self.stream_s(
            32.0 * rows * columns
        )

    def _flops_per_s(self, dtype: str) -> float:
        return DATASHEET_MATMUL * self.device.flops_per_s[dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """Rates from measurements on this machine, carried over from the probed shapes to others.

    A product's rate is interpolated between the rates of probed shapes, by inverse squared distance between the
    logarithms of tokens, inputs and outputs. What the blocks do beyond products, attention and casts of weights is the
    rest of the measured blocks' time, in seconds per byte of ``planner.traffic``'s count, interpolated over the
    logarithms of tokens and width.
    """

    probes: Probes
    compiled: bool = False

    def matmul_s(self, direction: MatmulPass, *, tokens: int, inputs: int, outputs: int, dtype: str) -> float:
        """One product of a linear layer."""
        known = [
            ((probe.tokens, probe.inputs, probe.outputs), probe.flops_per_s)
            for probe in self.probes.matmul
            if probe.dtype == dtype and probe.direction == direction
        ]
        return 2.0 * tokens * inputs * outputs / interpolate((tokens, inputs, outputs), known)

    def attention_s(
        self, *, sequences: int, heads: int, tokens: int, head_size: int, dtype: str, backward: bool
    ) -> float:
        """Causal attention of one layer, from probes at other lengths and head sizes."""
        known = [
            (
                (probe.tokens, probe.head_size),
                probe.forward_flops / (probe.backward if backward else probe.forward).median_s,
            )
            for probe in self.probes.attention
            if probe.dtype == dtype
        ]
        return 4.0 * sequences * heads * tokens**2 * head_size / interpolate((tokens, head_size), known)

    def blocks_rest_s(self, model: ModelSpec, *, tokens: int, dtype: str, backward: bool) -> float:
        """Everything in the blocks that is neither a linear layer nor attention."""
        traffic = block_traffic(model, tokens=tokens, dtype=dtype)
        moved = traffic.backward_bytes if backward else traffic.forward_bytes
        known = [
            ((probe.tokens, probe.model.width), self._seconds_per_byte(probe, backward=backward))
            for probe in self._blocks(model.family, dtype)
        ]
        between_s = moved * interpolate((tokens, model.width), known) * (COMPILED_REST if self.compiled else 1.0)
        return between_s + self.stream_s(traffic.cast_bytes, pieces=traffic.casts)

    def loss_rest_s(self, *, tokens: int, vocabulary: int, dtype: str) -> float:
        """Softmax, loss and its gradient without the products."""
        known = []
        for probe in _preferred(self.probes.loss, lambda probe: probe.dtype == dtype):
            products = sum(
                self.matmul_s(
                    direction, tokens=probe.tokens, inputs=probe.width, outputs=probe.vocabulary, dtype=probe.dtype
                )
                for direction in DIRECTIONS
            )
            logits = probe.tokens * probe.vocabulary
            known.append(
                ((probe.vocabulary,), max(probe.timing.median_s - products, 0.05 * probe.timing.median_s) / logits)
            )
        return tokens * vocabulary * interpolate((vocabulary,), known)

    def stream_s(self, moved_bytes: float, *, pieces: int = 1) -> float:
        """Reading and writing so many bytes, at the bandwidth of one tensor's working set."""
        known = [((probe.working_set_bytes,), probe.bytes_per_s) for probe in self.probes.bandwidth]
        return moved_bytes / interpolate((max(1, round(moved_bytes / pieces)),), known) if moved_bytes else 0.0

    def adamw_s(self, parameters: int) -> float:
        """One AdamW update, clipping included."""
        known = [((probe.parameters,), probe.timing.median_s / probe.parameters) for probe in self.probes.update]
        return parameters * interpolate((max(1, parameters),), known)

    def muon_s(self, rows: int, columns: int) -> float:
        """One Muon update of one matrix."""
        known = [
            ((min(probe.rows, probe.columns), max(probe.rows, probe.columns)),
             muon_flops(probe.rows, probe.columns) / probe.timing.median_s)
            for probe in self.probes.muon
        ]  # fmt: skip
        return muon_flops(rows, columns) / interpolate((min(rows, columns), max(rows, columns)), known)

    def _blocks(self, family: str, dtype: str) -> list[BlockProbe]:
        found = _preferred(self.probes.blocks, lambda probe: probe.dtype == dtype)
        return _preferred(found, lambda probe: probe.model.family == family)

    def _seconds_per_byte(self, probe: BlockProbe, *, backward: bool) -> float:
        measured = (probe.backward if backward else probe.forward).median_s
        products = linear_s(self, probe.model, tokens=probe.tokens, dtype=probe.dtype, backward=backward)
        attention = probe.model.layers * self.attention_s(
            sequences=probe.sequences, heads=probe.model.heads, tokens=probe.sequence_tokens,
            head_size=probe.model.head_size, dtype=probe.dtype, backward=backward,
        )  # fmt: skip
        traffic = block_traffic(probe.model, tokens=probe.tokens, dtype=probe.dtype)
        moved = traffic.backward_bytes if backward else traffic.forward_bytes
        casts = self.stream_s(traffic.cast_bytes, pieces=traffic.casts)
        return max(measured - products - attention - casts, 0.05 * measured) / moved


DIRECTIONS: tuple[MatmulPass, ...] = ("forward", "grad_input", "grad_weight")


def linear_s(rates: Rates, model: ModelSpec, *, tokens: int, dtype: str, backward: bool) -> float:
    """All linear layers of all blocks in one direction."""
    directions = DIRECTIONS[1:] if backward else DIRECTIONS[:1]
    return model.layers * sum(
        rates.matmul_s(direction, tokens=tokens, inputs=inputs, outputs=outputs, dtype=dtype)
        for outputs, inputs in block_matrices(model)
        for direction in directions
    )


def _preferred(found: Sequence[P], wanted: Callable[[P], bool]) -> list[P]:
    """Those that are ``wanted``, or all of them where none is."""
    return [probe for probe in found if wanted(probe)] or list(found)


def muon_flops(rows: int, columns: int) -> float:
    """Operations of Muon's five Newton-Schulz iterations on one matrix: X X^T, its square, and the product with X."""
    small, large = min(rows, columns), max(rows, columns)
    return 5 * (4.0 * small**2 * large + 2.0 * small**3)


def interpolate(point: tuple[int, ...], known: Iterable[tuple[tuple[int, ...], float]]) -> float:
    """A positive value at ``point`` from values at known points.

    Shepard's method (1968): the logarithms of the values, weighted by the inverse fourth power of the distance between
    the logarithms of the coordinates. It is exact at known points and never leaves their range.
    """
    total = weights = 0.0
    for place, value in known:
        distance = sum((math.log(a) - math.log(b)) ** 2 for a, b in zip(point, place, strict=True))
        if distance < 1e-12:
            return value
        weight = distance**-2
        total += weight * math.log(value)
        weights += weight
    if not weights:
        raise ValueError("nothing was measured to interpolate between")
    return math.exp(total / weights)
