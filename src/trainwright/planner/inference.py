"""Serving a decoder: weights, key-value cache, first token, tokens per second and dollars per million of them.

A prompt is computed in one pass that the processors bound (prefill); every further token reads all weights and the
whole cache once for the batch, which memory bounds (decode). Pope et al., Efficiently Scaling Transformer Inference
(2022, arXiv 2211.05102), sections 2 and 3. One replica is ``tp`` devices, which share every matrix, experts' too; a
cluster holds as many replicas as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trainwright.core.errors import RecipeError
from trainwright.hardware.efficiency import read_efficiency
from trainwright.hardware.stacks import DEFAULT, read_stack
from trainwright.planner.parameters import BLOCK_PARTS, matrices, total_parameters
from trainwright.planner.predict.collectives import Fabric, all_reduce_s, placement
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.predict.memory import usable_bytes
from trainwright.planner.predict.states import FROZEN_BYTES
from trainwright.planner.predict.step import longer, rates
from trainwright.planner.predict.work import forward_work, kernels, peak_flops_per_s
from trainwright.spec.device import ClusterSpec
from trainwright.spec.efficiency import Efficiency
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Interval
from trainwright.spec.stack import Stack
from trainwright.spec.workload import ParallelPlan, Precision, Workload

WeightFormat = Literal["fp32", "bf16", "fp16", "fp8", "nvfp4", "int8", "int4"]
CacheFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
WEIGHT_BYTES: Mapping[WeightFormat, float] = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5 + 1 / 16, "int8": FROZEN_BYTES["int8"],
    "int4": FROZEN_BYTES["int4"],
}  # fmt: skip
"""Bytes of one element of a block's matrix; nvfp4 has an fp8 scale for 16 of them, int4 GPTQ's groups of 128."""
CACHE_BYTES: Mapping[CacheFormat, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
COMPUTE: Mapping[WeightFormat, Precision] = {
    "fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "nvfp4": "nvfp4", "int8": "bf16", "int4": "bf16",
}  # fmt: skip
"""What products are computed in: integers are for weights alone and are widened as they are read."""
READ_SHARE = 0.83
"""Share of the datasheet's bandwidth that streaming weights reaches: about 1,700 of 2,039 GB/s on an A100 80 GB
(pytorch-labs/gpt-fast@0f925b5, README.md)."""
WIDENED_SHARE: Mapping[WeightFormat, float] = {"int8": 0.85, "int4": 0.72, "nvfp4": 0.72}
"""Of that, what kernels reach that widen weights as they read them: fitted to the same table's 8- and 4-bit rows."""
KERNEL_S = 2.4e-6
"""Seconds for which a small kernel leaves the memory idle, launched from a graph: fitted to the same table."""
CHUNK_TOKENS = 8192
"""Prompt tokens that are computed at once (vLLM's default ``max_num_batched_tokens`` for serving on 80 GB devices)."""
SPREAD = 0.15
"""Standard deviation of the logarithm of measured over predicted: decode steps of lmdeploy 0.1 on A100 (static
inference, docs/en/benchmark/a100_fp16.md) and the table above; ``tests/unit/planner/test_inference.py``."""
DEVIATIONS = 1.645


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """What is served: ``batch`` sequences at once on each replica of ``tp`` devices.

    Each has a prompt of ``prompt_tokens`` and gets ``new_tokens``.
    """

    prompt_tokens: int
    new_tokens: int
    batch: int = 1
    tp: int = 1
    weights: WeightFormat = "bf16"
    cache: CacheFormat = "bf16"

    @property
    def tokens(self) -> int:
        """Tokens of a finished sequence."""
        return self.prompt_tokens + self.new_tokens

    def problems(self, model: ModelSpec, cluster: ClusterSpec) -> tuple[str, ...]:
        """Every reason why this cannot be served; empty where there is none."""
        if model.kind != "decoder":
            return (f"{model.family} is no decoder: it does not write tokens one after the other",)
        names = ("prompt_tokens", "new_tokens", "batch", "tp")
        found = [f"{name} must be at least 1, seen {getattr(self, name)}" for name in names if getattr(self, name) < 1]
        if self.tokens > model.context_tokens:
            found.append(f"{self.tokens} tokens exceed the model's context ({model.context_tokens})")
        if self.tp > 0 and model.heads % self.tp:
            found.append(f"heads ({model.heads}) cannot be divided over tp={self.tp}")
        if self.tp > cluster.devices:
            found.append(f"tp={self.tp} needs more devices than the cluster has ({cluster.devices})")
        return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingMemory:
    """Bytes on one device at the end of generation; ``context`` is the driver's."""

    weights: float
    cache: float
    activations: float
    context: float

    @property
    def total_bytes(self) -> float:
        """Bytes of the whole."""
        return self.weights + self.cache + self.activations + self.context


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeStep:
    """Seconds of one decoding step half-way through generation, by what they are spent on.

    Reading and computing overlap, so that ``total_s`` is less than the sum.
    """

    weights: float
    cache: float
    compute: float
    launch: float
    communicate: float

    @property
    def total_s(self) -> float:
        """Seconds between two tokens of a sequence."""
        return float(longer(self.weights + self.cache, self.compute)) + self.launch + self.communicate

    @property
    def bottleneck(self) -> str:
        """What takes longest."""
        names = {
            "weights": "reading weights", "cache": "reading the cache", "compute": "computing",
            "launch": "launching kernels", "communicate": "communicating",
        }  # fmt: skip
        return names[max(names, key=lambda name: getattr(self, name))]


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceEstimate:
    """What serving takes and gives.

    ``first_token_s``: from a lone request's arrival to its first token. ``step_s``: between two tokens of a sequence.
    ``tokens_per_s``: new tokens of all replicas, prompts' time included. ``largest_batch`` for sequences of this
    length, ``largest_tokens`` for a sequence at this batch; 0 where none fits. ``prefill_s``: all prompts of the batch.
    """

    fits: bool
    memory: ServingMemory
    memory_available_bytes: float
    cache_bytes_per_token: float
    replicas: int
    first_token_s: Interval
    prefill_s: float
    step_s: Interval
    step: DecodeStep
    tokens_per_s_per_user: float
    tokens_per_s: float
    usd_per_million_tokens: Interval | None
    largest_batch: int
    largest_tokens: int
    assumptions: tuple[Assumption, ...]


def estimate_inference(
    model: ModelSpec,
    serving: Serving,
    cluster: ClusterSpec,
    *,
    usd_per_device_hour: float | None = None,
    stack: Stack | None = None,
    general: Efficiency | None = None,
) -> InferenceEstimate:
    """Memory, latency, throughput and cost of serving ``model``, as it is deployed, on ``cluster``.

    Raises:
        RecipeError: what is asked cannot be served (``Serving.problems``), or the device has no rate for it.
    """
    model = model.deployed()
    problems = serving.problems(model, cluster)
    if problems:
        raise RecipeError("; ".join(problems), where="inference")
    stack, general = stack or read_stack(DEFAULT), general or read_efficiency()
    memory, available = serving_memory(model, serving, stack), usable_bytes(cluster.device)
    together = max(1, min(serving.batch, CHUNK_TOKENS // serving.prompt_tokens))
    alone_s, together_s = (
        prefill_s(model, serving, cluster, stack, general, prompts=prompts) for prompts in (1, together)
    )
    prompts_s = serving.batch / together * together_s
    step = decode_step(model, serving, cluster, stack, general)
    replicas = cluster.devices // serving.tp
    whole_s = prompts_s + serving.new_tokens * step.total_s
    tokens_per_s = replicas * serving.batch * serving.new_tokens / whole_s

    def fits(other: Serving) -> bool:
        return serving_memory(model, other, stack).total_bytes <= available

    return InferenceEstimate(
        fits=fits(serving),
        memory=memory,
        memory_available_bytes=available,
        cache_bytes_per_token=cache_bytes_per_token(model, serving.cache),
        replicas=replicas,
        first_token_s=interval(alone_s),
        prefill_s=prompts_s,
        step_s=interval(step.total_s),
        step=step,
        tokens_per_s_per_user=1 / step.total_s,
        tokens_per_s=tokens_per_s,
        usd_per_million_tokens=_usd(usd_per_device_hour, cluster.devices, tokens_per_s),
        largest_batch=_largest(lambda batch: fits(replace(serving, batch=batch)), 1 << 20),
        largest_tokens=_largest(
            lambda tokens: fits(replace(serving, prompt_tokens=tokens, new_tokens=0)), model.context_tokens
        ),
        assumptions=_assumptions(serving, usd_per_device_hour),
    )


def cache_bytes_per_token(model: ModelSpec, cache: CacheFormat) -> float:
    """Bytes that one token of one sequence adds over all layers, while no window is full.

    Grouped attention keeps a key and a value for each key-value head; multi-head latent attention keeps the latent and
    the rotated key that all heads share (DeepSeek-V2, arXiv 2405.04434, section 2.1.4 and table 1).
    """
    return CACHE_BYTES[cache] * model.layers * _cached_elements(model, heads=model.kv_heads)


def _cached_elements(model: ModelSpec, *, heads: int) -> int:
    """Elements of one token in one layer."""
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_size
    return heads * (model.score_size + model.value_size)


def cache_bytes(model: ModelSpec, serving: Serving, *, tokens: float) -> float:
    """Bytes on one device for one sequence of ``tokens``.

    Windowed layers keep their window. Devices share key-value heads out, but each keeps at least one; a latent is
    whole on every device.
    """
    window = tokens if model.window_tokens is None else min(tokens, model.window_tokens)
    kept = (model.layers - model.windowed_layers) * tokens + model.windowed_layers * window
    heads = math.ceil(model.kv_heads / serving.tp)
    return CACHE_BYTES[serving.cache] * kept * _cached_elements(model, heads=heads)


def weight_bytes(model: ModelSpec, weights: WeightFormat) -> float:
    """Bytes of all weights: the blocks' matrices in ``weights``, tables, head and norms in 16 bits at least."""
    blocks = sum(
        matrix.layers * matrix.copies * matrix.elements for matrix in matrices(model) if matrix.part in BLOCK_PARTS
    )
    return WEIGHT_BYTES[weights] * blocks + max(2.0, WEIGHT_BYTES[weights]) * (total_parameters(model) - blocks)


def read_bytes(model: ModelSpec, serving: Serving) -> tuple[float, float]:
    """Bytes of the blocks' weights, and of the head's, that one decoding step reads on all devices together.

    Of ``count`` experts, ``count (1 - (1 - active / count)^batch)`` are somebody's choice, if each is as likely.
    """
    blocks = head = 0.0
    for matrix in matrices(model):
        touched = 1.0
        if matrix.part == "experts":
            touched = matrix.copies * (1 - (1 - matrix.rows / matrix.copies) ** serving.batch)
        if matrix.part in BLOCK_PARTS:
            blocks += WEIGHT_BYTES[serving.weights] * matrix.layers * touched * matrix.elements
        else:
            head += max(2.0, WEIGHT_BYTES[serving.weights]) * matrix.elements
    return blocks, head


def serving_memory(model: ModelSpec, serving: Serving, stack: Stack) -> ServingMemory:
    """Bytes on one device when the last token is written.

    Activations are those of one chunk of prompts: three tensors of the width, and the wider of attention's and the
    feed-forward's, in 16 bits; and logits of the batch, also in fp32.
    """
    tokens = min(CHUNK_TOKENS, serving.batch * serving.prompt_tokens)
    attention = 2 * model.heads * model.score_size + 2 * model.kv_heads * model.value_size
    inner = (3 if model.gated else 2) * model.ffn_width
    if model.experts is not None:
        experts = model.experts
        inner = 3 * (experts.active * experts.ffn_width + experts.shared_ffn_width) + 2 * experts.active * model.width
    hidden = 2.0 * tokens * (3 * model.width + max(attention, inner) / serving.tp)
    return ServingMemory(
        weights=weight_bytes(model, serving.weights) / serving.tp,
        cache=serving.batch * cache_bytes(model, serving, tokens=serving.tokens),
        activations=hidden + 6.0 * serving.batch * model.vocabulary / serving.tp,
        context=stack.memory.context_bytes,
    )


def prefill_s(
    model: ModelSpec, serving: Serving, cluster: ClusterSpec, stack: Stack, general: Efficiency, *, prompts: int
) -> float:
    """Seconds in which one replica computes ``prompts`` at once: training's forward pass, logits for last tokens."""
    workload = _workload(serving)
    layouts = Layouts.of([ParallelPlan(tp=serving.tp, micro_batch_sequences=prompts)], ["none"], workload)
    work = forward_work(model, workload, layouts, cluster.device)
    rate = rates(model, workload, cluster, stack, general)
    products = work.products_s / (rate.products * work.busy**rate.tiles)
    between = rate.traffic * work.traffic_s / rate.bandwidth
    compute = float((products + work.attention_s / rate.attention + between)[0])
    tokens = prompts * serving.prompt_tokens
    read = _read_s(model, replace(serving, batch=tokens), cluster)
    send = _reduce_s(model, serving, cluster, rows=tokens)
    return float(longer(compute, read)) + _launch_s(model, workload) + send


def decode_step(
    model: ModelSpec, serving: Serving, cluster: ClusterSpec, stack: Stack, general: Efficiency
) -> DecodeStep:
    """One step half-way through generation.

    With a latent, each head's scores and values are products with the latent itself, since the matrices behind it are
    absorbed (DeepSeek-V2, section 2.1.2).
    """
    workload, device = _workload(serving), cluster.device
    rate = rates(model, workload, cluster, stack, general)
    tokens = serving.prompt_tokens + serving.new_tokens / 2
    cached = serving.batch * cache_bytes(model, serving, tokens=tokens)
    flops = sum(2.0 * serving.batch * matrix.rows * matrix.layers * matrix.elements for matrix in matrices(model))
    score, value = model.score_size, model.value_size
    if model.latent is not None:
        score, value = model.latent.kv_rank + model.latent.rope_size, model.latent.kv_rank
    seen = tokens if model.window_tokens is None else min(tokens, model.window_tokens)
    pairs = (model.layers - model.windowed_layers) * tokens + model.windowed_layers * seen
    attention = 2.0 * serving.batch * model.heads * (score + value) * pairs
    peak, half = peak_flops_per_s(device, workload.precision), peak_flops_per_s(device, "bf16")
    compute = flops / (peak * rate.products) + attention / (half * rate.attention)
    return DecodeStep(
        weights=_read_s(model, serving, cluster),
        cache=cached / (READ_SHARE * device.bytes_per_s),
        compute=float(compute) / serving.tp,
        launch=_launch_s(model, workload),
        communicate=_reduce_s(model, serving, cluster, rows=serving.batch),
    )


def _workload(serving: Serving) -> Workload:
    """The prompt as a batch of one.

    A workload of training, of which the forward pass alone is used.
    """
    return Workload(
        sequence_tokens=serving.prompt_tokens, batch_tokens=serving.prompt_tokens, steps=1,
        precision=COMPUTE[serving.weights], optimizer="adamw", states="pure",
    )  # fmt: skip


def _read_s(model: ModelSpec, serving: Serving, cluster: ClusterSpec) -> float:
    blocks, head = read_bytes(model, serving)
    streamed = blocks / WIDENED_SHARE.get(serving.weights, 1.0) + head
    return streamed / serving.tp / (READ_SHARE * cluster.device.bytes_per_s)


def _launch_s(model: ModelSpec, workload: Workload) -> float:
    return KERNEL_S * model.layers * kernels(model, workload)


def _reduce_s(model: ModelSpec, serving: Serving, cluster: ClusterSpec, *, rows: int) -> float:
    """Two all-reduces a block of ``rows`` hidden states in 16 bits (Shoeybi et al., 2019)."""
    if serving.tp == 1:
        return 0.0
    fabric = Fabric.of(cluster)
    group = placement(domain=fabric.domain, tp=serving.tp).tp
    return 2 * model.layers * float(all_reduce_s(fabric, 2.0 * rows * model.width, group))


def interval(mid: float) -> Interval:
    """The range that holds the truth nine times in ten."""
    factor = math.exp(DEVIATIONS * SPREAD)
    return Interval(low=mid / factor, mid=mid, high=mid * factor)


def _usd(usd_per_device_hour: float | None, devices: int, tokens_per_s: float) -> Interval | None:
    if usd_per_device_hour is None:
        return None
    return interval(devices * usd_per_device_hour / 3600 / tokens_per_s * 1e6)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to ``limit`` that fits, if all smaller ones do; 0 where none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _assumptions(serving: Serving, usd_per_device_hour: float | None) -> tuple[Assumption, ...]:
    measured = "pytorch-labs/gpt-fast@0f925b5, README.md"
    found = [
        Assumption(name="share of the memory's bandwidth", value=READ_SHARE * WIDENED_SHARE.get(serving.weights, 1.0),
                   unit="", origin="catalog", source=measured),
        Assumption(name="time lost for each kernel", value=KERNEL_S, unit="s", origin="catalog", source=measured),
        Assumption(name="prompt tokens computed at once", value=CHUNK_TOKENS, unit="tokens", origin="default",
                   source="vLLM's max_num_batched_tokens"),
    ]  # fmt: skip
    if usd_per_device_hour is not None:
        found.append(Assumption(name="price", value=usd_per_device_hour, unit="$ per device and hour", origin="given"))
    return tuple(found)
