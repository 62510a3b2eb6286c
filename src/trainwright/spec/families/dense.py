"""Dense decoders: what sets each apart from Llama or from GPT-2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import decoder_head, llama_like
from trainwright.spec.model import ModelSpec, Positions


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
    return {"window_tokens": tokens, "window_layers": None if len(numbers) == count else numbers}


def _windows_above(read: ConfigReader) -> dict[str, Any]:
    """Qwen: where it is switched on, layers from ``max_window_layers`` on have the window."""
    if not read.flag("use_sliding_window", False):
        return {}
    first = read.integer("max_window_layers", 28, least=0)
    return windows(read, read.optional("sliding_window"), range(first, read.integer("num_hidden_layers")))


def mistral(read: ConfigReader) -> ModelSpec:
    """Mistral 7B (Jiang et al., 2023): grouped heads and, in its first version, a sliding window."""
    kv_heads = read.integer("num_key_value_heads", 8)
    return llama_like(read, "mistral", kv_heads=kv_heads, **windows(read, read.optional("sliding_window")))


def qwen2(read: ConfigReader) -> ModelSpec:
    """Qwen2 and Qwen2.5: biases of queries, keys and values only."""
    return llama_like(read, "qwen2", bias=False, qkv_bias=True, **_windows_above(read))


def qwen3(read: ConfigReader) -> ModelSpec:
    """Qwen3: normalised queries and keys."""
    head_size = read.integer("head_dim", 128)
    return llama_like(read, "qwen3", head_size=head_size, qk_norm=True, **_windows_above(read))


def phi3(read: ConfigReader) -> ModelSpec:
    """Phi-3 and Phi-4: Llama's network with joined matrices, in some sizes with a window."""
    epsilon = read.number("rms_norm_eps", 1e-5)
    return llama_like(read, "phi3", bias=False, norm_epsilon=epsilon, **windows(read, read.optional("sliding_window")))


def granite(read: ConfigReader) -> ModelSpec:
    """Granite 3: Llama's network with scaled residuals."""
    return llama_like(read, "granite")


def _gemma_like(read: ConfigReader, family: str, **different: Any) -> ModelSpec:
    key = "hidden_act" if family == "gemma" else "hidden_activation"
    act = read.activation(key, "gelu_pytorch_tanh")
    # Gemma's first configurations name the exact GELU and compute the approximate one.
    return llama_like(
        read,
        family,
        head_size=read.integer("head_dim", 256),
        tied=read.flag("tie_word_embeddings", True),
        activation="gelu_tanh" if act == "gelu" else act,
        **different,
    )


def gemma(read: ConfigReader) -> ModelSpec:
    """Gemma 1."""
    return _gemma_like(read, "gemma")


def gemma2(read: ConfigReader) -> ModelSpec:
    """Gemma 2: a norm behind each half of a block too; every other layer has a window."""
    every_other = range(0, read.integer("num_hidden_layers"), 2)
    window = read.integer("sliding_window", 4096)
    return _gemma_like(read, "gemma2", norms_per_block=4, **windows(read, window, every_other))


def gemma3_text(read: ConfigReader) -> ModelSpec:
    """Gemma 3's decoder: Gemma 2's norms, normalised queries and keys, five windowed layers for each whole one."""
    layers, pattern = read.integer("num_hidden_layers"), read.integer("sliding_window_pattern", 6)
    window = read.integer("sliding_window", 4096)
    return _gemma_like(
        read,
        "gemma3_text",
        norms_per_block=4,
        qk_norm=True,
        rope_theta=read.rope_theta(1e6),
        **windows(read, window, [layer for layer in range(layers) if (layer + 1) % pattern]),
    )


def _layernorm_decoder(read: ConfigReader, family: str, *, width: int, heads: int, **others: Any) -> ModelSpec:
    """Returns a decoder of GPT-2's kind: LayerNorm, plain feed-forward, four times as wide, biases; and its ``own``."""
    head = decoder_head(read)
    settings: dict[str, Any] = {
        "kv_heads": heads,
        "head_size": read.head_size(width, heads),
        "ffn_width": 4 * width,
        "gated": False,
        "norm": "layernorm",
        "bias": True,
        "positions": "rope",
        "rope_theta": read.rope_theta(),
        "vocabulary": read.integer("vocab_size"),
    }
    return ModelSpec(family=family, width=width, heads=heads, **(settings | head | others))


def gpt_neox(read: ConfigReader) -> ModelSpec:
    """GPT-NeoX-20B and Pythia: rotary positions, attention and feed-forward side by side, two norms."""
    width, bias = read.integer("hidden_size"), read.flag("attention_bias", True)
    return _layernorm_decoder(
        read,
        "gpt_neox",
        width=width,
        heads=read.integer("num_attention_heads"),
        layers=read.integer("num_hidden_layers"),
        ffn_width=read.integer("intermediate_size", 4 * width),
        context_tokens=read.integer("max_position_embeddings", 2048),
        tied=read.flag("tie_word_embeddings", False),
        norm_epsilon=read.number("layer_norm_eps", 1e-5),
        qkv_bias=bias,
        output_bias=bias,
        activation=read.activation("hidden_act", "gelu"),
    )


def phi(read: ConfigReader) -> ModelSpec:
    """Phi-1.5 and Phi-2: attention and feed-forward side by side behind one norm; the head has a bias."""
    width, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    return _layernorm_decoder(
        read,
        "phi",
        width=width,
        heads=heads,
        kv_heads=read.integer("num_key_value_heads", heads),
        layers=read.integer("num_hidden_layers"),
        ffn_width=read.integer("intermediate_size"),
        context_tokens=read.integer("max_position_embeddings", 2048),
        tied=read.flag("tie_word_embeddings", False),
        norm_epsilon=read.number("layer_norm_eps", 1e-5),
        norms_per_block=1,
        head_bias=True,
        qk_norm=read.flag("qk_layernorm", False),
        activation=read.activation("hidden_act", "gelu_new"),
    )


def starcoder2(read: ConfigReader) -> ModelSpec:
    """StarCoder2 (Lozhkov et al., 2024): grouped heads, rotary positions, biases, LayerNorm."""
    layers = read.integer("num_hidden_layers")
    return _layernorm_decoder(
        read,
        "starcoder2",
        width=read.integer("hidden_size"),
        heads=read.integer("num_attention_heads"),
        kv_heads=read.integer("num_key_value_heads", 2),
        layers=layers,
        ffn_width=read.integer("intermediate_size"),
        context_tokens=read.integer("max_position_embeddings", 4096),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("norm_epsilon", 1e-5),
        bias=read.flag("use_bias", True),
        activation=read.activation("hidden_act", "gelu_pytorch_tanh"),
        **windows(read, read.optional("sliding_window")),
    )


def falcon(read: ConfigReader) -> ModelSpec:
    """Falcon (Almazrouei et al., 2023): one or few key heads, no biases, one norm (7B) or two (40B)."""
    width, heads = read.either("hidden_size", "n_embed"), read.either("num_attention_heads", "n_head")
    new, parallel = read.flag("new_decoder_architecture", False), read.flag("parallel_attn", True)
    grouped = read.either("num_kv_heads", "n_head_kv", default=heads)
    norms = read.integer("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 2
    positions: Positions = "alibi" if read.flag("alibi", False) else "rope"
    return _layernorm_decoder(
        read,
        "falcon",
        width=width,
        heads=heads,
        layers=read.either("num_hidden_layers", "n_layer"),
        kv_heads=grouped if new else 1 if read.flag("multi_query", True) else heads,
        ffn_width=read.integer("ffn_hidden_size", 4 * width),
        positions=positions,
        norms_per_block=norms,
        context_tokens=read.integer("max_position_embeddings", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        bias=read.flag("bias", False),
        activation=read.activation("activation", "gelu"),
    )


def bloom(read: ConfigReader) -> ModelSpec:
    """BLOOM (Scao et al., 2022): ALiBi, and a norm behind the embedding."""
    return _layernorm_decoder(
        read,
        "bloom",
        width=read.either("hidden_size", "n_embed"),
        heads=read.either("n_head", "num_attention_heads"),
        layers=read.either("n_layer", "num_hidden_layers"),
        positions="alibi",
        embedding_norm=True,
        context_tokens=read.integer("seq_length", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        activation="gelu_tanh",
    )


def opt(read: ConfigReader) -> ModelSpec:
    """OPT (Zhang et al., 2022): learned positions, two of them never used; ReLU."""
    width = read.integer("hidden_size")
    projected = read.integer("word_embed_proj_dim", width)
    if projected != width:
        raise read.unsupported("word_embed_proj_dim", projected, str(width))
    read.refuse("layer_norm_elementwise_affine", True)
    before = read.flag("do_layer_norm_before", True)
    return _layernorm_decoder(
        read,
        "opt",
        width=width,
        heads=read.integer("num_attention_heads"),
        layers=read.integer("num_hidden_layers"),
        ffn_width=read.integer("ffn_dim"),
        positions="learned",
        extra_positions=2,
        context_tokens=read.integer("max_position_embeddings", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=1e-5,
        bias=read.flag("enable_bias", True),
        final_norm=before and not read.flag("_remove_final_layer_norm", False),
        activation=read.activation("activation_function", "relu"),
    )


def mpt(read: ConfigReader) -> ModelSpec:
    """MPT (MosaicML, 2023): no biases, not in the norms either; ALiBi, or learned positions where it is off."""
    width, heads = read.integer("d_model"), read.integer("n_heads")
    attention = read.section("attn_config")
    attention.refuse("qk_ln", False)
    read.refuse("no_bias", True)
    positions: Positions = "alibi" if attention.flag("alibi", True) else "learned"
    return _layernorm_decoder(
        read,
        "mpt",
        width=width,
        heads=heads,
        layers=read.integer("n_layers"),
        positions=positions,
        kv_heads=attention.integer("kv_n_heads", heads),
        ffn_width=read.integer("expansion_ratio", 4) * width,
        context_tokens=read.integer("max_seq_len", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        bias=False,
        norm_bias=False,
        activation="gelu",
    )
