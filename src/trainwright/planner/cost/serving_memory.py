"""What a replica that serves a decoder keeps: weights, key-value cache, activations of a chunk of prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import FROZEN_BYTES
from trainwright.planner.counts.parameters import block_matrix_parameters, total_parameters
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack

WeightFormat = Literal["fp32", "bf16", "fp16", "fp8", "nvfp4", "int8", "int4"]
CacheFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
WEIGHT_BYTES: Mapping[WeightFormat, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "int8": FROZEN_BYTES["int8"],
    "int4": FROZEN_BYTES["int4"],
}
"""Bytes of one element of a block's matrix; nvfp4 has an fp8 scale for 16 of them, int4 GPTQ's groups of 128."""
CACHE_BYTES: Mapping[CacheFormat, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
CHUNK_TOKENS = 8192
"""Prompt tokens that are computed at once (vLLM's default ``max_num_batched_tokens`` for serving on 80 GB devices)."""


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
        """Returns the tokens of a finished sequence."""
        return self.prompt_tokens + self.new_tokens

    def problems(self, model: ModelSpec, cluster: ClusterSpec) -> tuple[str, ...]:
        """Returns every reason why this cannot be served; empty where there is none."""
        if model.kind != "decoder":
            return (f"{model.family} is no decoder: it does not write tokens one after the other",)
        names = ("prompt_tokens", "new_tokens", "batch", "tp")
        problems = [
            f"{name} must be at least 1, seen {getattr(self, name)}" for name in names if getattr(self, name) < 1
        ]
        if self.tokens > model.context_tokens:
            problems.append(f"{self.tokens} tokens exceed the model's context ({model.context_tokens})")
        if self.tp > 0 and model.heads % self.tp:
            problems.append(f"heads ({model.heads}) cannot be divided over tp={self.tp}")
        if self.tp > cluster.devices:
            problems.append(f"tp={self.tp} needs more devices than the cluster has ({cluster.devices})")
        return tuple(problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingMemory:
    """Bytes on one device at the end of generation; ``context`` is the driver's."""

    weights: float
    cache: float
    activations: float
    context: float

    @property
    def total_bytes(self) -> float:
        """Returns the bytes of the whole."""
        return self.weights + self.cache + self.activations + self.context


def cache_bytes_per_token(model: ModelSpec, cache: CacheFormat) -> float:
    """Returns the bytes that one token of one sequence adds over all layers, while no window is full.

    Grouped attention keeps a key and a value for each key-value head; multi-head latent attention keeps the latent and
    the rotated key that all heads share (DeepSeek-V2, arXiv 2405.04434, section 2.1.4 and table 1).
    """
    return CACHE_BYTES[cache] * model.layers * _cached_elements(model, heads=model.kv_heads)


def _cached_elements(model: ModelSpec, *, heads: int) -> int:
    """Returns the elements of one token in one layer."""
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_size
    return heads * (model.score_size + model.value_size)


def cache_bytes(model: ModelSpec, serving: Serving, *, tokens: float) -> float:
    """Returns the bytes on one device for one sequence of ``tokens``.

    Windowed layers keep their window. Devices share key-value heads out, but each keeps at least one; a latent is
    whole on every device.
    """
    window = tokens if model.window_tokens is None else min(tokens, model.window_tokens)
    kept = (model.layers - model.windowed_layers) * tokens + model.windowed_layers * window
    heads = math.ceil(model.kv_heads / serving.tp)
    return CACHE_BYTES[serving.cache] * kept * _cached_elements(model, heads=heads)


def weight_bytes(model: ModelSpec, weights: WeightFormat) -> float:
    """Returns the bytes of all weights: blocks' matrices in ``weights``, all else in 16 bits at least."""
    blocks = block_matrix_parameters(model)
    return WEIGHT_BYTES[weights] * blocks + max(2.0, WEIGHT_BYTES[weights]) * (total_parameters(model) - blocks)


def serving_memory(model: ModelSpec, serving: Serving, stack: Stack) -> ServingMemory:
    """Returns the bytes on one device when the last token is written.

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
