"""Serving a decoder: weights, key-value cache, first token, tokens per second and dollars per million of them.

A prompt is computed in one pass that the processors bound (prefill); every further token reads all weights and the
whole cache once for the batch, which memory bounds (decode): Pope et al., 2022, arXiv 2211.05102, sections 2 and 3. One
replica is ``tp`` devices, which share every matrix, experts' too; a cluster holds as many replicas as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.hardware.catalogue.stacks import DEFAULT, read_stack
from trainwright.planner.cost.assumptions import of_device, of_price
from trainwright.planner.cost.serving_memory import (
    CHUNK_TOKENS,
    WEIGHT_BYTES,
    Serving,
    ServingMemory,
    WeightFormat,
    cache_bytes,
    cache_bytes_per_token,
    serving_memory,
)
from trainwright.planner.counts.between import kernels
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.planner.counts.work import forward_work, peak_flops_per_s
from trainwright.planner.forecast.communication.collectives import Fabric, all_reduce_s, placement
from trainwright.planner.forecast.memory.table import usable_bytes
from trainwright.planner.forecast.time.passes import longer
from trainwright.planner.rates.catalogue import rates
from trainwright.spec.device import ClusterSpec, DeviceSpec, Price
from trainwright.spec.efficiency import Efficiency
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import INTERVAL, Assumption, Interval
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import ParallelPlan, Precision, Workload

COMPUTE: Mapping[WeightFormat, Precision] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "int8": "bf16",
    "int4": "bf16",
}
"""What products are computed in: integers are for weights alone and are widened as they are read."""
READ_SHARE = 0.83
"""Share of the datasheet's bandwidth that streaming weights reaches: about 1,700 of 2,039 GB/s on an A100 80 GB
(pytorch-labs/gpt-fast@0f925b5, README.md)."""
WIDENED_SHARE: Mapping[WeightFormat, float] = {"int8": 0.85, "int4": 0.72, "nvfp4": 0.72}
"""Of that, what kernels reach that widen weights as they read them: fitted to the same table's 8- and 4-bit rows."""
KERNEL_S = 2.4e-6
"""Seconds for which a small kernel leaves the memory idle, launched from a graph: fitted to the same table."""
SPREAD = 0.15
"""Standard deviation of the logarithm of measured over predicted: decode steps of lmdeploy 0.1 on A100 (static
inference, docs/en/benchmark/a100_fp16.md) and the table above; ``tests/unit/planner/cost/test_serving.py``."""


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
        """Returns the seconds between two tokens of a sequence."""
        return float(longer(self.weights + self.cache, self.compute)) + self.launch + self.communicate

    @property
    def bottleneck(self) -> str:
        """Returns the part that takes longest, in words."""
        names = {
            "weights": "reading weights",
            "cache": "reading the cache",
            "compute": "computing",
            "launch": "launching kernels",
            "communicate": "communicating",
        }
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
    model: ModelSpec, serving: Serving, cluster: ClusterSpec, *, price: Price | None = None, stack: Stack | None = None
) -> InferenceEstimate:
    """Returns memory, latency, throughput and cost of serving ``model``, as it is deployed, on ``cluster``.

    Raises:
        RecipeError: what is asked cannot be served (``Serving.problems``), or the device has no rate for it.
    """
    model = model.deployed()
    problems = serving.problems(model, cluster)
    if problems:
        raise RecipeError("; ".join(problems), where="inference")
    stack, general = stack or read_stack(DEFAULT), read_efficiency()
    memory, available = serving_memory(model, serving, stack), usable_bytes(cluster.device)
    together = max(1, min(serving.batch, CHUNK_TOKENS // serving.prompt_tokens))
    run = RunSpec(model=model, workload=_workload(serving), cluster=cluster, stack=stack)
    alone_s, together_s = (prefill_s(run, serving, general, prompts=prompts) for prompts in (1, together))
    prompts_s = serving.batch / together * together_s
    step = decode_step(run, serving, general)
    replicas = cluster.devices // serving.tp
    whole_s = prompts_s + serving.new_tokens * step.total_s
    tokens_per_s = replicas * serving.batch * serving.new_tokens / whole_s
    usd_per_s = None if price is None else cluster.devices * price.usd_per_device_hour / 3600

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
        usd_per_million_tokens=None if usd_per_s is None else interval(usd_per_s / tokens_per_s * 1e6),
        largest_batch=_largest(lambda batch: fits(replace(serving, batch=batch)), 1 << 20),
        largest_tokens=_largest(
            lambda tokens: fits(replace(serving, prompt_tokens=tokens, new_tokens=0)), model.context_tokens
        ),
        assumptions=_assumptions(serving, cluster.device, price),
    )


def read_bytes(model: ModelSpec, serving: Serving) -> tuple[float, float]:
    """Returns the bytes of the blocks' weights, and of the head's, that a decoding step reads on all devices.

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


def prefill_s(run: RunSpec, serving: Serving, general: Efficiency, *, prompts: int) -> float:
    """Returns the seconds in which one replica computes prompts at once: a forward pass, logits for last tokens."""
    model, workload, cluster = run.transformer, run.workload, run.cluster
    layouts = Layouts.of([ParallelPlan(tp=serving.tp, micro_batch_sequences=prompts)], ["none"], workload)
    work = forward_work(model, workload, layouts, cluster.device)
    rate = rates(run, general)
    products = work.products_s / (rate.products * work.busy**rate.tiles)
    between = rate.traffic * work.traffic_s / rate.bandwidth
    compute = float((products + work.attention_s / rate.attention + between)[0])
    tokens = prompts * serving.prompt_tokens
    read = _read_s(model, replace(serving, batch=tokens), cluster)
    send = _reduce_s(model, serving, cluster, rows=tokens)
    return float(longer(compute, read)) + _launch_s(model, workload) + send


def decode_step(run: RunSpec, serving: Serving, general: Efficiency) -> DecodeStep:
    """Returns one step half-way through generation.

    With a latent, each head's scores and values are products with the latent itself, since the matrices behind it are
    absorbed (DeepSeek-V2, section 2.1.2).
    """
    model, workload, cluster, device = run.transformer, run.workload, run.cluster, run.cluster.device
    rate = rates(run, general)
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
    """Returns a workload of training with the prompt as a batch of one; its forward pass alone is used."""
    tokens, precision = serving.prompt_tokens, COMPUTE[serving.weights]
    return Workload(
        sequence_tokens=tokens, batch_tokens=tokens, steps=1, precision=precision, optimizer="adamw", states="pure"
    )


def _read_s(model: ModelSpec, serving: Serving, cluster: ClusterSpec) -> float:
    blocks, head = read_bytes(model, serving)
    streamed = blocks / WIDENED_SHARE.get(serving.weights, 1.0) + head
    return streamed / serving.tp / (READ_SHARE * cluster.device.bytes_per_s)


def _launch_s(model: ModelSpec, workload: Workload) -> float:
    return KERNEL_S * model.layers * float(kernels(model, workload))


def _reduce_s(model: ModelSpec, serving: Serving, cluster: ClusterSpec, *, rows: int) -> float:
    """Returns the seconds of two all-reduces a block of ``rows`` 16-bit hidden states (Shoeybi et al., 2019)."""
    if serving.tp == 1:
        return 0.0
    fabric = Fabric.of(cluster)
    group = placement(domain=fabric.domain, tp=serving.tp).tp
    return 2 * model.layers * float(all_reduce_s(fabric, 2.0 * rows * model.width, group))


def interval(mid: float) -> Interval:
    """Returns the range that holds the truth nine times in ten."""
    factor = math.exp(INTERVAL * SPREAD)
    return Interval(low=mid / factor, mid=mid, high=mid * factor)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """Returns the largest number up to ``limit`` that fits, if all smaller ones do; 0 where none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _assumptions(serving: Serving, device: DeviceSpec, price: Price | None) -> tuple[Assumption, ...]:
    measured = "pytorch-labs/gpt-fast@0f925b5, README.md"
    share, vllm = READ_SHARE * WIDENED_SHARE.get(serving.weights, 1.0), "vLLM's max_num_batched_tokens"
    return (
        *of_device(device),
        Assumption("share of the memory's bandwidth", share, "", "catalog", measured, key="bandwidth_share"),
        Assumption("time lost for each kernel", KERNEL_S, "s", "catalog", measured, key="kernel_time"),
        Assumption("prompt tokens computed at once", CHUNK_TOKENS, "tokens", "default", vllm, key="prompt_chunk"),
        *(() if price is None else (of_price(price),)),
    )
