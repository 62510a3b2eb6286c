"""What the manifests of stages say first of their files; ``spec.summary`` has the whole record of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.spec.workload import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSummary:
    """A plan for one machine; ``seconds`` is the middle of the range, ``mfu`` None where the peak is unknown."""

    fits: bool
    precision: Precision
    parameters: int
    steps: int
    micro_batch: int
    compile: bool
    memory_bytes: float
    seconds: float
    tokens_per_s: float
    mfu: float | None
    bottleneck: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSummary:
    """A dataset: ``documents`` and ``bytes`` of text that were kept, ``tokens`` by split."""

    vocabulary: int
    documents: int
    bytes: int
    tokens: Mapping[str, int]
    bytes_per_token: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSummary:
    """A dataset of images: how many by split, of so many classes, each of ``size`` x ``size`` x ``channels`` bytes."""

    images: Mapping[str, int]
    classes: int
    size: int
    channels: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditSummary:
    """An audit of the recipe ``run``; ratios are measured / predicted."""

    run: str
    seconds_ratio: float
    memory_ratio: float
    time_within_range: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSummary:
    """Bundles of one model: the largest differences of a logit after reading back, and by rounding the weights."""

    formats: tuple[str, ...]
    dtype: str
    parameters: int
    logit_difference: float
    rounding_difference: float
