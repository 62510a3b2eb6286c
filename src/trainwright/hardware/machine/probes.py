"""Measurements of a machine: records that ``runtime.probes`` fills and the planner reads.

Each measurement keeps its median, its quartiles and its fastest repetition: the planner takes medians for the estimate
and quartiles for its range, the peak is taken from the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from trainwright.core.frozen import dataclass
from trainwright.spec.device import DeviceKind
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Precision

MatmulPass = Literal["forward", "grad_input", "grad_weight"]
"""The three products of a linear layer: x W^T, dY W and dY^T X."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of one call: median, quartiles and the fastest of ``repetitions``."""

    median_s: float
    low_s: float
    high_s: float
    fastest_s: float
    repetitions: int

    def divided(self, parts: int) -> Timing:
        """Returns the time of one of ``parts`` equal pieces of work that were timed together."""
        return replace(
            self,
            median_s=self.median_s / parts,
            low_s=self.low_s / parts,
            high_s=self.high_s / parts,
            fastest_s=self.fastest_s / parts,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulProbe:
    """One product of a linear layer that maps ``inputs`` to ``outputs`` features for ``tokens`` rows."""

    dtype: str
    direction: MatmulPass
    tokens: int
    inputs: int
    outputs: int
    timing: Timing

    @property
    def flops_per_s(self) -> float:
        """Returns the rate of the median repetition."""
        return self.flops / self.timing.median_s

    @property
    def flops(self) -> float:
        """Returns two operations per multiply-add."""
        return 2.0 * self.tokens * self.inputs * self.outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakProbe:
    """A product of two square matrices of ``side`` rows into memory that is already there: nothing but arithmetic."""

    dtype: str
    side: int
    timing: Timing

    @property
    def flops_per_s(self) -> float:
        """Returns the rate of the fastest repetition."""
        return 2.0 * self.side**3 / self.timing.fastest_s


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthProbe:
    """``z = x + y`` into fresh memory: two reads and one write over a working set of three arrays."""

    working_set_bytes: int
    timing: Timing

    @property
    def bytes_per_s(self) -> float:
        """Returns bytes read and written per second."""
        return self.working_set_bytes / self.timing.median_s


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionProbe:
    """Causal ``scaled_dot_product_attention`` over ``sequences`` x ``heads`` sequences of ``tokens``."""

    dtype: str
    sequences: int
    heads: int
    tokens: int
    head_size: int
    forward: Timing
    backward: Timing

    @property
    def forward_flops(self) -> float:
        """Counted in full, without the saving of the causal mask: 4 T^2 d per head."""
        return 4.0 * self.sequences * self.heads * self.tokens**2 * self.head_size


@dataclass(frozen=True, kw_only=True, slots=True)
class LossProbe:
    """Projection to the vocabulary, cross-entropy and its gradient over ``tokens`` rows."""

    dtype: str
    tokens: int
    width: int
    vocabulary: int
    timing: Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateProbe:
    """One AdamW update (clipping of the gradient included) of ``parameters`` fp32 parameters."""

    parameters: int
    timing: Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonProbe:
    """One Muon update of one ``rows`` x ``columns`` matrix, its orthogonalisation included."""

    rows: int
    columns: int
    timing: Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockProbe:
    """Forward and backward of a small real network, from tokens to hidden states: what lies beyond its products.

    ``sequences`` of ``sequence_tokens`` tokens.
    """

    model: ModelSpec
    dtype: Precision
    sequences: int
    sequence_tokens: int
    forward: Timing
    backward: Timing

    @property
    def tokens(self) -> int:
        """Rows of every matrix product."""
        return self.sequences * self.sequence_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowthProbe:
    """Memory that forward and backward of a small real network add at their peak, its gradients included.

    On a CPU that is resident memory of the process, on CUDA what torch's allocator gave out.
    """

    model: ModelSpec
    dtype: str
    sequences: int
    sequence_tokens: int
    grown_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskProbe:
    """Sequential write (to the disk, not to its cache), read and sha256 of one file."""

    size_bytes: int
    write_s: float
    read_s: float
    digest_s: float


BUSY = 0.25
"""Share of the processors; a machine that is busier measures other programs with itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probes:
    """Everything measured on one device of this machine, when (``measured_unix_s``) and how thoroughly.

    ``cpu_busy`` is the share of the processors that other programs used when it began.
    ``launch_s`` is the time of an operation on one number; ``baseline_bytes`` the resident memory of a process that has
    imported what training imports and multiplied once; ``import_s`` the time such a process takes to start.
    """

    device_kind: DeviceKind
    device_name: str
    threads: int
    thorough: bool
    measured_unix_s: float
    cpu_busy: float
    peak: tuple[PeakProbe, ...]
    matmul: tuple[MatmulProbe, ...]
    bandwidth: tuple[BandwidthProbe, ...]
    attention: tuple[AttentionProbe, ...]
    loss: tuple[LossProbe, ...]
    update: tuple[UpdateProbe, ...]
    muon: tuple[MuonProbe, ...]
    blocks: tuple[BlockProbe, ...]
    growth: tuple[GrowthProbe, ...]
    disk: DiskProbe
    launch_s: float
    baseline_bytes: int
    import_s: float
    probe_s: float
    memory_bytes: int | None = None
    """Of an accelerator, as torch tells it."""

    def peak_flops_per_s(self, dtype: str) -> float | None:
        """Returns the fastest repetition of any matrix product in ``dtype``, or None where none was measured."""
        squares = (probe.flops_per_s for probe in self.peak if probe.dtype == dtype)
        layers = (probe.flops / probe.timing.fastest_s for probe in self.matmul if probe.dtype == dtype)
        return max((*squares, *layers), default=None)

    @property
    def doubtful(self) -> bool:
        """Returns whether other programs used so much of the processors that rates are too low."""
        return self.cpu_busy > BUSY

    def dtypes(self) -> tuple[str, ...]:
        """Precisions that were probed."""
        return _unique(probe.dtype for probe in self.matmul)

    def flat(self) -> dict[str, float]:
        """Returns the few numbers that a plan carries along."""
        largest = max(self.bandwidth, key=lambda probe: probe.working_set_bytes)
        numbers = {f"matmul_{dtype}_flops_per_s": self.peak_flops_per_s(dtype) or 0.0 for dtype in self.dtypes()}
        return numbers | {
            "memory_bytes_per_s": largest.bytes_per_s,
            "launch_s": self.launch_s,
            "baseline_bytes": float(self.baseline_bytes),
            "disk_write_bytes_per_s": self.disk.size_bytes / self.disk.write_s,
            "disk_read_bytes_per_s": self.disk.size_bytes / self.disk.read_s,
        }


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
