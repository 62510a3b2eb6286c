"""Dense decoders of GPT-2's kind: what sets each apart from it."""

from __future__ import annotations

from typing import Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import decoder_head
from trainwright.spec.families.rmsnorm import windows
from trainwright.spec.model import ModelSpec, Positions


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
