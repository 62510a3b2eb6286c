"""Dense decoders of Llama's kind: what sets each apart from it, in a recipe and in a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.family import QKV
from trainwright.spec.families.llama import FAMILY as LLAMA
from trainwright.spec.families.llama import llama_like
from trainwright.spec.families.rotary import rope_scaling, section_scaling
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.scales import Scales

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

_FORMS = "trainwright.model.families."
GEMMA_WINDOW = 4096
"""Tokens of the window of Gemma 2 and 3."""
GEMMA3_PATTERN = 6
"""Every sixth layer of Gemma 3 sees the whole context."""


def _with_biases(spec: ModelSpec) -> ModelSpec:
    return replace(spec, qkv_bias=True)


def _with_head_norms(spec: ModelSpec) -> ModelSpec:
    return replace(spec, qk_norm=True)


def _as_gemma(spec: ModelSpec) -> ModelSpec:
    """Norms multiply by one more than their weights, embeddings by the square root of the width."""
    return replace(spec, norm_offset=1.0, scales=replace(spec.scales, embedding=spec.width**0.5))


def _as_gemma2(spec: ModelSpec) -> ModelSpec:
    layers = tuple(range(0, spec.layers, 2))
    windowed = replace(_as_gemma(spec), window_tokens=GEMMA_WINDOW, window_layers=_all_or(layers, spec.layers))
    return replace(windowed, norms_per_block=4, score_cap=50.0, logit_cap=30.0)


def _as_gemma3(spec: ModelSpec) -> ModelSpec:
    layers = tuple(layer for layer in range(spec.layers) if (layer + 1) % GEMMA3_PATTERN)
    windowed = replace(_as_gemma(spec), window_tokens=GEMMA_WINDOW, window_layers=_all_or(layers, spec.layers))
    return replace(windowed, norms_per_block=4, qk_norm=True, window_rope_theta=1e4)


def _all_or(layers: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    """Returns numbers of layers as ``ModelSpec.window_layers`` has them."""
    return None if len(layers) == count else layers


MISTRAL = replace(LLAMA, huggingface=f"{_FORMS}mistral")
QWEN2 = replace(LLAMA, huggingface=f"{_FORMS}qwen2", complete=_with_biases)
QWEN3 = replace(LLAMA, huggingface=f"{_FORMS}qwen3", complete=_with_head_norms)
PHI3 = replace(LLAMA, huggingface=f"{_FORMS}phi3", joined=(*QKV, ("gate", "up")))
GRANITE = replace(LLAMA, huggingface=f"{_FORMS}granite")
GEMMA = replace(
    LLAMA,
    huggingface=f"{_FORMS}gemma",
    complete=_as_gemma,
    activation="gelu_tanh",
    tied=True,
    ffn_width=lambda width: 8 * width,
)
GEMMA2 = replace(GEMMA, huggingface=f"{_FORMS}gemma2", complete=_as_gemma2, ffn_width=lambda width: 4 * width)
GEMMA3_TEXT = replace(GEMMA2, huggingface=f"{_FORMS}gemma3_text", complete=_as_gemma3)


def windows(read: ConfigReader, tokens: int | None, layers: Iterable[int] | None = None) -> dict[str, Any]:
    """Returns the window's fields of ``ModelSpec``: ``layer_types`` says which layers have it, else ``layers`` do.

    Args:
        read: the configuration.
        tokens: of the window; None: there is none.
        layers: numbers of those that have it where ``layer_types`` is not there; None: all.
    """
    kinds, count = read.names("layer_types"), read.integer("num_hidden_layers")
    if kinds is not None:
        layers = [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]
    numbers = tuple(range(count) if layers is None else layers)
    if tokens is None or not numbers:
        return {}
    return {"window_tokens": tokens, "window_layers": _all_or(numbers, count)}


def _windows_above(read: ConfigReader) -> dict[str, Any]:
    """Qwen: where it is switched on, layers from ``max_window_layers`` on have the window."""
    if not read.flag("use_sliding_window", False):
        return {}
    first = read.integer("max_window_layers", 28, least=0)
    return windows(read, read.optional("sliding_window"), range(first, read.integer("num_hidden_layers")))


def mistral(read: ConfigReader) -> ModelSpec:
    """Mistral 7B (Jiang et al., 2023): grouped heads and, in its first version, a sliding window."""
    kv_heads = read.integer("num_key_value_heads", 8)
    window = windows(read, read.optional("sliding_window"))
    return llama_like(read, "mistral", bias=False, kv_heads=kv_heads, **window)


def qwen2(read: ConfigReader) -> ModelSpec:
    """Qwen2 and Qwen2.5: biases of queries, keys and values only."""
    return llama_like(read, "qwen2", bias=False, qkv_bias=True, **_windows_above(read))


def qwen3(read: ConfigReader) -> ModelSpec:
    """Qwen3: normalised queries and keys."""
    head_size = read.integer("head_dim", 128)
    return llama_like(read, "qwen3", head_size=head_size, qk_norm=True, **_windows_above(read))


def phi3(read: ConfigReader) -> ModelSpec:
    """Phi-3 and Phi-4: Llama's network with joined matrices, in some sizes with a window or a part of heads turned."""
    return llama_like(
        read,
        "phi3",
        bias=False,
        norm_epsilon=read.number("rms_norm_eps", 1e-5),
        rope_scaling=rope_scaling(read, yarn_is_longrope=True),
        rotary_share=read.rope().number("partial_rotary_factor", read.number("partial_rotary_factor", 1.0)),
        **windows(read, read.optional("sliding_window")),
    )


def granite(read: ConfigReader) -> ModelSpec:
    """Granite 3: Llama's network with scaled embeddings, scores, residuals and logits."""
    spec = llama_like(read, "granite")
    scales = Scales(
        embedding=read.number("embedding_multiplier", 1.0),
        residual=read.number("residual_multiplier", 1.0),
        attention=_score_scale(read.number("attention_multiplier", 1.0), spec.head_size),
        logits_divisor=read.number("logits_scaling", 1.0),
    )
    return replace(spec, scales=scales)


def _score_scale(scale: float, head_size: int) -> float | None:
    """Returns ``Scales.attention``."""
    return None if scale == head_size**-0.5 else scale


def _gemma_like(read: ConfigReader, family: str, **different: Any) -> ModelSpec:
    key = "hidden_act" if family == "gemma" else "hidden_activation"
    act = read.activation(key, "gelu_pytorch_tanh")
    if read.flag("use_bidirectional_attention", False):
        raise read.unsupported("use_bidirectional_attention", True, "False")
    spec = llama_like(
        read,
        family,
        head_size=read.integer("head_dim", 256),
        tied=read.flag("tie_word_embeddings", True),
        # Gemma's first configurations name the exact GELU and compute the approximate one.
        activation="gelu_tanh" if act == "gelu" and family == "gemma" else act,
        **different,
    )
    return _as_gemma(spec)


def gemma(read: ConfigReader) -> ModelSpec:
    """Gemma 1."""
    return _gemma_like(read, "gemma")


def _later_gemma(
    read: ConfigReader, family: str, *, caps: tuple[float | None, float | None], **others: Any
) -> ModelSpec:
    """Gemma 2 and 3: a norm behind each half of a block too, a scale of queries and soft caps of scores and logits."""
    spec = _gemma_like(
        read,
        family,
        norms_per_block=4,
        score_cap=read.optional_number("attn_logit_softcapping", caps[0]),
        logit_cap=read.optional_number("final_logit_softcapping", caps[1]),
        **others,
    )
    scale = _score_scale(read.number("query_pre_attn_scalar", 256.0) ** -0.5, spec.head_size)
    return replace(spec, scales=replace(spec.scales, attention=scale))


def gemma2(read: ConfigReader) -> ModelSpec:
    """Gemma 2: every other layer has a window."""
    every_other = range(0, read.integer("num_hidden_layers"), 2)
    window = read.optional("sliding_window", GEMMA_WINDOW)
    return _later_gemma(read, "gemma2", caps=(50.0, 30.0), **windows(read, window, every_other))


def gemma3_text(read: ConfigReader) -> ModelSpec:
    """Gemma 3's decoder: normalised queries and keys, five windowed layers for each whole one, two rotary bases."""
    layers, pattern = read.integer("num_hidden_layers"), read.integer("sliding_window_pattern", GEMMA3_PATTERN)
    window = read.optional("sliding_window", GEMMA_WINDOW)
    whole, narrow = (read.section("rope_parameters").section(f"{kind}_attention") for kind in ("full", "sliding"))
    narrow.refuse("rope_type", "default")
    apart = read.section("rope_parameters").names_any("full_attention") and not read.names_any("rope_scaling")
    fields = windows(read, window, [layer for layer in range(layers) if (layer + 1) % pattern])
    if fields:
        fields["window_rope_theta"] = narrow.number("rope_theta", read.number("rope_local_base_freq", 1e4))
    return _later_gemma(
        read,
        "gemma3_text",
        caps=(None, None),
        qk_norm=True,
        rope_theta=read.rope_theta(1e6),
        rope_scaling=section_scaling(read, whole) if apart else rope_scaling(read),
        **fields,
    )
