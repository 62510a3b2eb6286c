"""Replays whole published trainings: device-hours of all tokens, goodput included, against what was reported.

A table of totals has columns model, n_params, n_active, tokens, gpu, n_gpus, and one of gpu_hours, days, cost_usd; its
``source`` may print the price (``$2/GPU-h``). A model that the catalogue does not know is planned as a decoder of its
size; a number of devices that is not printed is the one that takes about three weeks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.core.errors import TrainwrightError
from trainwright.hardware.catalogue import device
from trainwright.hardware.models import find_model
from trainwright.hardware.nodes import node_size
from trainwright.hardware.stacks import DEFAULT
from trainwright.planner.cluster_plan import planned
from trainwright.planner.parameters import active_parameters
from trainwright.planner.predict.work import peak_flops_per_s
from trainwright.planner.published.rows import Record
from trainwright.planner.question import DEFAULT_SEQUENCE_TOKENS, Question, resolve
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Precision

REQUIRED = ("model", "n_params", "tokens", "gpu", "gpu_hours")
"""Columns by which a table of totals is known."""
USUAL_WEEKS, USUAL_MFU = 3.0, 0.4
WEEK_S, HOUR_S = 7 * 24 * 3600.0, 3600.0
SIZE_STEP = 128
USUAL_BATCH_TOKENS, BATCH_CEILING_TOKENS = 1 << 22, 1 << 24
"""Large clusters get a sequence for each device, up to Llama 3's 16 M tokens (arXiv 2407.21783, table 4)."""
EXPERTS_STACK = "megatron-core"
"""Mixtures of experts of this size are trained on fused kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """One training: device-hours reported, and predicted as low, mid and high."""

    name: str
    line: int
    device: str
    devices: int
    reported_hours: float
    low_hours: float
    hours: float
    high_hours: float
    mfu: float

    @property
    def ratio(self) -> float:
        """Predicted over reported."""
        return self.hours / self.reported_hours


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A row that is no training of a stated number of tokens, and why."""

    name: str
    line: int
    reason: str


def replay(records: Iterable[Record]) -> tuple[list[Total], list[Skipped]]:
    """Every training of the table."""
    totals: list[Total] = []
    skipped: list[Skipped] = []
    for record in records:
        try:
            totals.append(total(record))
        except (ValueError, TrainwrightError) as error:
            skipped.append(Skipped(name=record.text("model"), line=record.line, reason=str(error)))
    return totals, skipped


def total(record: Record) -> Total:
    """One training.

    Raises:
        ValueError: the row lacks tokens, size or hours, or is no pretraining.
        RecipeError: its device is unknown, or nothing fits on it.
    """
    name = record.text("model")
    if "RLHF" in name:
        raise ValueError("generation and several networks at once, not a training of one network")
    tokens, model = record.number("tokens"), model_of(record)
    if not tokens:
        raise ValueError("no number of tokens")
    spec = device(record.text("gpu"), where=f"line {record.line}, column gpu")
    precision: Precision = "fp8" if "fp8" in name.lower() else "bf16" if "bf16" in spec.flops_per_s else "fp16"
    whole = node_size(spec.name)
    devices = int(record.number("n_gpus") or 0)
    if not devices:
        flops = 6 * active_parameters(model) * tokens
        wanted = flops / (USUAL_MFU * peak_flops_per_s(spec, precision) * USUAL_WEEKS * WEEK_S)
        devices = whole * 2 ** max(0, round(math.log2(max(1.0, wanted / whole))))
    reported = reported_hours(record, devices)
    nodes = max(1, round(devices / whole))
    on = f"{nodes}x{min(whole, devices)}x{spec.name}" if devices > whole else f"{devices}x{spec.name}"
    batch = min(BATCH_CEILING_TOKENS, devices * min(model.context_tokens, DEFAULT_SEQUENCE_TOKENS))
    plan = planned(
        resolve(
            Question(
                model=model, on=on, tokens=int(tokens), precision=precision,
                batch_tokens=batch if batch > USUAL_BATCH_TOKENS else None,
                stack=EXPERTS_STACK if model.experts else DEFAULT,
            )
        )
    ).plan  # fmt: skip
    found = plan.estimate
    per_second = plan.cluster.devices / HOUR_S
    return Total(
        name=name, line=record.line, device=spec.name, devices=plan.cluster.devices, reported_hours=reported,
        low_hours=found.seconds.low * per_second, hours=found.seconds.mid * per_second,
        high_hours=found.seconds.high * per_second, mfu=found.mfu,
    )  # fmt: skip


def reported_hours(record: Record, devices: int) -> float:
    """Device-hours: printed, or days times devices, or dollars over the printed price.

    Raises:
        ValueError: none of them is there.
    """
    hours, days, usd = record.number("gpu_hours"), record.number("days"), record.number("cost_usd")
    if hours:
        return hours
    if days and record.number("n_gpus"):
        return days * 24 * devices
    price = re.search(r"\$(\d+(?:\.\d+)?)/GPU-h", record.text("source"))
    if usd and price:
        return usd / float(price[1])
    raise ValueError("no device-hours, no days with devices, no dollars with a price")


def model_of(record: Record) -> ModelSpec:
    """The catalogue's model of that name and size, else a decoder of the size; of a mixture, of its active size.

    Raises:
        ValueError: the row prints no size.
    """
    size = record.number("n_params")
    known = find_model(re.sub(r"\s*\(.*\)", "", record.text("model")))
    if known is not None and isinstance(known.spec, ModelSpec) and (not size or 0.9 < known.parameters / size < 1.1):
        return known.spec
    if not size:
        raise ValueError("no number of parameters")
    return decoder_of(record.number("n_active") or size)


def decoder_of(parameters: float, *, vocabulary: int = 50257, context_tokens: int = 2048) -> ModelSpec:
    """A GPT of about that size: 12 L D^2 + V D parameters.

    It is as wide for its depth as GPT-3 (arXiv 2005.14165, table 2.1: D / L from 64 at 125 M to 128 at 175 B).
    """
    aspect = min(128.0, 64 * (parameters / 1.25e8) ** 0.1)

    def miss(width: int) -> float:
        layers = max(1, round((parameters - vocabulary * width) / (12 * width**2)))
        size = 12 * layers * width**2 + vocabulary * width
        return abs(math.log(size / parameters)) + 0.2 * abs(math.log(width / layers / aspect))

    width = min(range(2 * SIZE_STEP, 256 * SIZE_STEP, SIZE_STEP), key=miss)
    layers = max(1, round((parameters - vocabulary * width) / (12 * width**2)))
    return ModelSpec(
        family="transformer", layers=layers, width=width, heads=width // SIZE_STEP, kv_heads=width // SIZE_STEP,
        head_size=SIZE_STEP, ffn_width=4 * width, vocabulary=vocabulary, context_tokens=context_tokens, tied=True,
        gated=False, norm="layernorm", norm_epsilon=1e-5, positions="learned", rope_theta=1e4, bias=True,
        activation="gelu",
    )  # fmt: skip
