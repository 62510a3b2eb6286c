"""Replays whole published trainings: device-hours of all tokens, goodput included, against what was reported.

A table of totals has columns model, n_params, n_active, tokens, gpu, n_gpus, and one of gpu_hours, days, cost_usd; its
``source`` may print the price (``$2/GPU-h``). A row may say how it trained, by names that tables of runs have too:
framework, seq_len, global_batch and micro_batch in sequences, dp_shard_or_fsdp, tp, pp, activation_checkpointing and
flash_attention, with where that is printed under ``settings``. What it does not say is chosen alike for all: a model
that the catalogue does not know is a decoder, or a mixture, of its size; sequences have 4,096 tokens; the batch is the
one that the catalogue's file on the model prints, or grows with the devices; the number of devices is the square root
of the hours of all of them; the software is the one that model or source name, the precision the one that the row or
the catalogue's note on the model names; the layout is the fastest. A row that its source calls an
estimate or a plan was extrapolated from throughput, and is held to the steps alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from trainwright.core.errors import TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.efficiency import generation
from trainwright.hardware.catalogue.models import find_model
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.catalogue.stacks import DEFAULT, find_stack, read_stack, stack_names
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.counts.parameters import active_parameters
from trainwright.planner.counts.work import peak_flops_per_s
from trainwright.planner.evidence.rows import Record
from trainwright.planner.evidence.words import fused, recompute_of
from trainwright.planner.plan.budget import MOST_PARAMETERS, model_of_size
from trainwright.planner.plan.cluster import Planned, planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.sizes import MOST_TOKENS
from trainwright.spec.convnet import transformer
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.workload import Precision, ZeroStage

REQUIRED = ("model", "n_params", "tokens", "gpu", "gpu_hours")
"""Columns by which a table of totals is known."""
USUAL_MFU = 0.4
HOUR_S = 3600.0
USUAL_BATCH_TOKENS, MOST_BATCH_TOKENS = 1 << 22, 1 << 24
"""Large clusters get a sequence for each device, up to Llama 3's 16 M tokens (arXiv 2407.21783, table 4)."""
USUAL_SEQUENCE_TOKENS = 4096
"""Between the 2,048 tokens of GPT-3 and LLaMA and the 8,192 of Llama 3; Llama 2, OLMo 2, Qwen2.5 and DeepSeek-V3 have
it, and contexts that are longer were reached in a late and short stage."""
EXPERTS_STACK = "megatron-core"
"""Mixtures of experts of this size are trained on fused kernels."""
FEW_EXPERTS, MANY_EXPERTS = (2, 4), (8, 8)
"""Experts that see a token, and what their number is a multiple of: Mixtral's, and DeepSeek-V3's."""
SPARSE = 8.0
"""Parameters over active ones from which on experts are many and small (Mixtral 8x7B: 3.6, DeepSeek-V3: 18)."""
LEAST_MFU, BELIEVED_MFU = 0.001, 0.7
"""No published step reaches the latter: the best of 1,060 rows is at 0.64 (``tests/data/published/runs.csv``)."""

_SEVERAL = re.compile(r"RLHF|distill", re.IGNORECASE)
_ASSUMED = re.compile(r"theoretical|not a measurement", re.IGNORECASE)
_ADDRESS = re.compile(r"\b[\w-]+(?:\.[\w-]+)+/\S*")
"""A page's address: a model card on huggingface.co does not say that Hugging Face's trainer made the model."""
_SHARED = re.compile(r"zero([0-3])|hsdp:([1-9]\d*)")
"""How data-parallel ranks share: at a stage of ZeRO, or at the third in groups of so many."""
_EXTRAPOLATED = re.compile(r"\bestimated?\b|\best\.|\bplan\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """One training: device-hours reported, and predicted as low, mid and high.

    ``bare_hours`` are without the overhead of runs; ``steps_s`` are the steps alone, to which an ``extrapolated``
    row is held. ``spread`` is the steps' own standard deviation of the logarithm.
    """

    name: str
    line: int
    device: str
    devices: int
    reported_hours: float
    low_hours: float
    hours: float
    high_hours: float
    mfu: float
    generation: str
    extrapolated: bool
    steps_s: float
    bare_hours: float
    spread: float

    @property
    def ratio(self) -> float:
        """Returns predicted over reported hours."""
        return self.hours / self.reported_hours


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A row that is no training of a stated number of tokens, and why."""

    name: str
    line: int
    reason: str


def replay(records: Iterable[Record]) -> tuple[list[Total], list[Skipped]]:
    """Returns every training of the table."""
    totals: list[Total] = []
    skipped: list[Skipped] = []
    for record in records:
        try:
            totals.append(total(record))
        except (ValueError, TrainwrightError) as error:
            skipped.append(Skipped(name=record.text("model"), line=record.line, reason=str(error)))
    return totals, skipped


def total(record: Record) -> Total:
    """Returns one training, reported and predicted.

    Raises:
        ValueError: the row lacks tokens, size or hours, is no pretraining, or cannot be true.
        RecipeError: its device is unknown, or nothing fits on it.
    """
    if _SEVERAL.search(_words(record)):
        raise ValueError("several networks at once, not a training of one network")
    if _ASSUMED.search(_words(record)):
        raise ValueError("hours from a rate that was assumed, not measured")
    record.refuse_surplus()
    _refuse_sizes(record)
    tokens, model = record.number("tokens"), model_of(record)
    if not tokens:
        raise ValueError("no number of tokens")
    if tokens > MOST_TOKENS:
        raise ValueError(f"tokens is {record.text('tokens')}, expected at most {MOST_TOKENS:.0e}")
    spec = device(record.text("gpu"), where=f"line {record.line}, column gpu")
    precision = precision_of(record, spec)
    devices = int(record.number("n_gpus") or 0) or _usual_devices(model, tokens, spec, precision)
    reported = reported_hours(record, devices)
    _refuse_share(6 * active_parameters(model) * tokens / (reported * HOUR_S * peak_flops_per_s(spec, precision)))
    planned_run = replanned(record, model, spec, devices)
    per_second, extrapolated = planned_run.plan.cluster.devices / HOUR_S, bool(_EXTRAPOLATED.search(_words(record)))
    run, step, parts = planned_run.plan.estimate.seconds, planned_run.choice.forecast, planned_run.run.parts
    low, mid, high, bare_s = run.low, run.mid, run.high, parts.total_s - parts.overhead_s
    if extrapolated:
        low, mid, high = (float(planned_run.run.steps[0] * each[0]) for each in (step.low_s, step.step_s, step.high_s))
        bare_s = parts.steps_s
    return Total(
        name=record.text("model"),
        line=record.line,
        device=spec.name,
        devices=planned_run.plan.cluster.devices,
        reported_hours=reported,
        low_hours=low * per_second,
        hours=mid * per_second,
        high_hours=high * per_second,
        mfu=float(step.mfu[0]),
        generation=generation(spec),
        extrapolated=extrapolated,
        steps_s=float(parts.steps_s[0]),
        bare_hours=float(bare_s[0]) * per_second,
        spread=float(step.spread[0]),
    )


def _refuse_sizes(record: Record) -> None:
    """Raises ValueError for a training without a name or with a count that is none: an unknown one is an empty cell."""
    if not record.text("model"):
        raise ValueError("model is empty")
    for name in ("n_params", "n_active", "n_gpus"):
        count = record.number(name)
        if count is not None and not (1 <= count <= MOST_PARAMETERS and count.is_integer()):
            expected = f"a whole number from 1 to {MOST_PARAMETERS:.0e}, or an empty cell where it is not known"
            raise ValueError(f"{name} is {record.text(name)}, expected {expected}")
    size, active = record.number("n_params"), record.number("n_active")
    if size and active and active > size:
        raise ValueError(f"n_active is {record.text('n_active')}, expected at most n_params, {record.text('n_params')}")


def _refuse_share(mfu: float) -> None:
    """Raises ValueError for hours in which a training would have reached what none does of its device's peak."""
    if mfu > BELIEVED_MFU:
        raise ValueError(f"{mfu:.0%} of the device's peak, beyond any published step: its columns disagree")
    if mfu < LEAST_MFU:
        raise ValueError(f"{mfu:.1g} of the device's peak, below any published run: its columns disagree")


def _words(record: Record) -> str:
    return f"{record.text('model')} {record.text('source')}"


def _usual_devices(model: ModelSpec, tokens: float, spec: DeviceSpec, precision: Precision) -> int:
    """Returns the square root of a training's device-hours: whole nodes, a power of two of them.

    Of 32 trainings that say their devices 21 had half to twice as many, 30 a quarter to four times; one a sixteenth
    (TinyLlama, on two nodes), one sixteen times (MosaicGPT 1.3B); the median is 1.0.
    """
    flops, whole = 6 * active_parameters(model) * tokens, node_size(spec.name)
    wanted = math.sqrt(flops / (USUAL_MFU * peak_flops_per_s(spec, precision) * HOUR_S))
    return int(whole * 2 ** max(0, round(math.log2(max(1.0, wanted / whole)))))


def replanned(record: Record, model: ModelSpec, spec: DeviceSpec, devices: int) -> Planned:
    """Returns the training as it would be planned, on whole nodes, with the settings that the row says.

    Raises:
        ValueError: a setting that is not understood.
    """
    whole = node_size(spec.name)
    on = f"{max(1, round(devices / whole))}x{min(whole, devices)}x{spec.name}"
    sequence = record.whole("seq_len", min(model.context_tokens, USUAL_SEQUENCE_TOKENS))
    recompute = record.text("activation_checkpointing")
    asked = Question(
        model=model if sequence <= model.context_tokens else replace(model, context_tokens=sequence),
        on=on if devices > whole else f"{devices}x{spec.name}",
        tokens=int(record.number("tokens") or 0),
        sequence_tokens=sequence,
        batch_tokens=_batch_of(record, model, devices, sequence),
        precision=precision_of(record, spec),
        stack=stack_of(record, model),
        layout=_layout_of(record),
        recompute=recompute_of(recompute) if recompute else None,
        fused_attention=fused(record.text("flash_attention")),
    )
    return planned(scenario_of(asked))


def _batch_of(record: Record, model: ModelSpec, devices: int, sequence: int) -> int | None:
    """Returns the tokens of a step: as the row or the catalogue's file on the model says; None: as plans choose it."""
    if record.text("global_batch"):
        return record.whole("global_batch") * sequence
    known, usual = find_model(_plain_name(record)), min(MOST_BATCH_TOKENS, devices * sequence)
    batch = known.trained_batch_tokens if known is not None and known.spec == model else None
    return batch or (usual if usual > USUAL_BATCH_TOKENS else None)


def _layout_of(record: Record) -> FixedLayout:
    """Returns what the row fixes of the parallel layout; the rest is chosen."""
    layout = FixedLayout()
    if record.text("tp"):
        layout["tp"] = record.whole("tp")
    if record.text("pp"):
        layout["pp"] = record.whole("pp")
    if record.text("micro_batch"):
        layout["micro_batch"] = record.whole("micro_batch")
    word = record.text("dp_shard_or_fsdp")
    if word:
        found = _SHARED.fullmatch(word)
        if found is None:
            raise ValueError(f"dp_shard_or_fsdp is {word}, expected zero0 to zero3, or hsdp:N")
        stage, ranks = found.groups()
        layout["zero_stage"] = 3 if ranks else cast("ZeroStage", int(stage))
        if ranks:
            layout["dp_shard"] = int(ranks)
    return layout


def precision_of(record: Record, spec: DeviceSpec) -> Precision:
    """Returns FP8 where the row or the catalogue's note on the model says so, else the device's 16 bits."""
    known = find_model(_plain_name(record))
    words = f"{_words(record)} {known.note if known else ''}".lower()
    return "fp8" if "fp8" in words else "bf16" if "bf16" in spec.flops_per_s else "fp16"


def stack_of(record: Record, model: ModelSpec) -> str:
    """Returns the software that the row says, or that model or source name as a word, the longest such word first.

    Where nothing names it, it is what is usual.
    """
    said = record.text("framework")
    if said:
        known = find_stack(said)
        if known is None:
            raise ValueError(f"framework is {said}, expected software that the catalogue knows")
        return known.name
    text = _ADDRESS.sub(" ", _words(record).lower())
    heard = [
        (len(word), name)
        for name in stack_names()
        for word in (*read_stack(name).words, *filter(str.islower, read_stack(name).aliases))
        if re.search(rf"(?<![a-z]){re.escape(word)}", text)
    ]
    return max(heard)[1] if heard else EXPERTS_STACK if model.experts else DEFAULT


def reported_hours(record: Record, devices: int) -> float:
    """Returns the device-hours: printed, or days times devices, or dollars over the printed price.

    Raises:
        ValueError: none of them is there.
    """
    hours, days, usd = (record.number(name) for name in ("gpu_hours", "days", "cost_usd"))
    if hours:
        return hours
    if days and record.number("n_gpus"):
        return days * 24 * devices
    price = re.search(r"\$(\d+(?:\.\d+)?)/GPU-h", record.text("source"))
    if usd and price:
        return usd / float(price[1])
    raise ValueError("no device-hours, no days with devices, no dollars with a price")


def _plain_name(record: Record) -> str:
    return re.sub(r"\s*\(.*\)", "", record.text("model"))


def model_of(record: Record) -> ModelSpec:
    """Returns the catalogue's model of that name and size, else a decoder or a mixture of the size.

    Raises:
        ValueError: the row prints no size.
    """
    size = record.number("n_params")
    known = find_model(_plain_name(record))
    if known is not None and known.spec.is_divisible and (not size or 0.9 < known.parameters / size < 1.1):
        return transformer(known.spec)
    if not size:
        raise ValueError("no number of parameters")
    active = record.number("n_active") or size
    return model_of_size(size) if active == size else mixture_of(size, active)


def mixture_of(parameters: float, active: float) -> ModelSpec:
    """Returns the decoder of the active size, its feed-forward cut into active experts, with others beside them."""
    dense = model_of_size(active)
    seen, unit = MANY_EXPERTS if parameters / active > SPARSE else FEW_EXPERTS
    routed = (3.0 if dense.gated else 2.0) * dense.layers * dense.width * dense.ffn_width
    count = unit * max(1, round(seen * (1 + (parameters - active) / routed) / unit))
    return replace(dense, experts=Experts(count=count, active=seen, ffn_width=dense.ffn_width // seen))
