"""Decoders with LayerNorm and a plain feed-forward: what sets each apart from GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.family import QKV, Family
from trainwright.spec.families.llama import decoder_head
from trainwright.spec.families.rmsnorm import windows
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.scales import Scales

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader


def _family(name: str, shape: Mapping[str, Any] = MappingProxyType({}), **different: Any) -> Family:
    """Returns a family whose networks have these fields of ``shape`` too."""
    settings: dict[str, Any] = {
        "gated": False,
        "norm": "layernorm",
        "positions": "rope",
        "bias": True,
        "activation": "gelu",
        "tied": True,
        "ffn_width": lambda width: 4 * width,
        "complete": lambda spec: replace(spec, **shape),
        "huggingface": f"trainwright.model.families.{name}",
    }
    return Family(**(settings | different))


GPT_NEOX = _family("gpt_neox", tied=False, joined=QKV, shape={"parallel_residual": True, "rotary_share": 0.25})
PHI = _family(
    "phi",
    activation="gelu_tanh",
    tied=False,
    shape={"parallel_residual": True, "norms_per_block": 1, "head_bias": True, "rotary_share": 0.5},
)
STARCODER2 = _family("starcoder2", activation="gelu_tanh")
OPT = _family("opt", activation="relu", positions="learned", shape={"extra_positions": 2})
BLOOM = _family("bloom", joined=QKV, activation="gelu_tanh", positions="alibi", shape={"embedding_norm": True})
MPT = _family("mpt", joined=QKV, bias=False, positions="alibi", shape={"norm_bias": False})
FALCON = _family("falcon", joined=QKV, bias=False, shape={"parallel_residual": True, "norms_per_block": 1})
"""Falcon 7B, but for its one key head, which ``kv_heads`` says."""


def _layernorm_decoder(read: ConfigReader, family: str, *, width: int, heads: int, **others: Any) -> ModelSpec:
    """Returns a decoder of GPT-2's kind: LayerNorm, plain feed-forward, four times as wide, biases; and its ``own``."""
    read.refuse("add_cross_attention", False)
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
    """GPT-NeoX-20B (Black et al., 2022) and Pythia: attention and feed-forward side by side, a quarter is rotated."""
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
        parallel_residual=read.flag("use_parallel_residual", True),
        activation=read.activation("hidden_act", "gelu"),
        **_rotary(read, base=read.number("rotary_emb_base", 10000.0), share=read.number("rotary_pct", 0.25)),
        **({} if bias else {"qkv_bias": False, "output_bias": False}),
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
        parallel_residual=True,
        norms_per_block=1,
        head_bias=True,
        qk_norm=read.flag("qk_layernorm", False),
        activation=read.activation("hidden_act", "gelu_new"),
        **_rotary(read, share=read.number("partial_rotary_factor", 0.5)),
    )


def starcoder2(read: ConfigReader) -> ModelSpec:
    """StarCoder2 (Lozhkov et al., 2024): grouped heads, rotary positions, biases, LayerNorm."""
    return _layernorm_decoder(
        read,
        "starcoder2",
        width=read.integer("hidden_size"),
        heads=read.integer("num_attention_heads"),
        kv_heads=read.integer("num_key_value_heads", 2),
        layers=read.integer("num_hidden_layers"),
        ffn_width=read.integer("intermediate_size"),
        context_tokens=read.integer("max_position_embeddings", 4096),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("norm_epsilon", 1e-5),
        bias=read.flag("use_bias", True),
        activation=read.activation("hidden_act", "gelu_pytorch_tanh"),
        **_rotary(read),
        **windows(read, read.optional("sliding_window")),
    )


def falcon(read: ConfigReader) -> ModelSpec:
    """Falcon (Almazrouei et al., 2023): one or few key heads, no biases, one norm (7B) or two (40B).

    Its first ones (Falcon-RW) have ALiBi in place of rotary positions, and divide it by the root of a head's size, as
    they do scores. transformers rounds that bias to bfloat16 before it does so; here it is exact.
    """
    width, heads = read.either("hidden_size", "n_embed"), read.either("num_attention_heads", "n_head")
    new, parallel = read.flag("new_decoder_architecture", False), read.flag("parallel_attn", True)
    if new:
        read.refuse("parallel_attn", True)
    norms = read.integer("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 2
    if norms > 1 + (new or not parallel):
        raise read.unsupported("num_ln_in_parallel_attn", norms, "1, or new_decoder_architecture")
    grouped = read.either("num_kv_heads", "n_head_kv", default=heads)
    alibi = read.flag("alibi", False)
    places: dict[str, Any] = _rotary(read)
    if alibi:
        places = {"positions": "alibi", "scales": Scales(alibi=read.head_size(width, heads) ** -0.5)}
    return _layernorm_decoder(
        read,
        "falcon",
        width=width,
        heads=heads,
        layers=read.either("num_hidden_layers", "n_layer"),
        kv_heads=grouped if new else 1 if read.flag("multi_query", True) else heads,
        ffn_width=read.integer("ffn_hidden_size", 4 * width),
        parallel_residual=parallel,
        norms_per_block=norms,
        context_tokens=read.integer("max_position_embeddings", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        bias=read.flag("bias", False),
        activation=read.activation("activation", "gelu"),
        **places,
    )


def bloom(read: ConfigReader) -> ModelSpec:
    """BLOOM (Scao et al., 2022): ALiBi, and a norm behind the embedding."""
    read.refuse("apply_residual_connection_post_layernorm", False)
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
    read.refuse("do_layer_norm_before", True)
    read.refuse("_remove_final_layer_norm", False)
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
        activation=read.activation("activation_function", "relu"),
    )


def mpt(read: ConfigReader) -> ModelSpec:
    """MPT (MosaicML, 2023): ALiBi; no biases, not in the norms either.

    What the settings of its first code can be and transformers' cannot is refused: learned positions, grouped heads,
    another width of the feed-forward, ALiBi's other slopes.
    """
    width, heads = read.integer("d_model"), read.integer("n_heads")
    attention = read.section("attn_config")
    for key, value in _MPT_ATTENTION.items():
        attention.refuse(key, value)
    attention.refuse("kv_n_heads", heads)
    for key, value in _MPT.items():
        read.refuse(key, value)
    scale = attention.number("softmax_scale", 0.0) or None
    return _layernorm_decoder(
        read,
        "mpt",
        width=width,
        heads=heads,
        layers=read.integer("n_layers"),
        positions="alibi",
        context_tokens=read.integer("max_seq_len", 2048),
        tied=read.flag("tie_word_embeddings", True),
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        bias=False,
        norm_bias=False,
        activation="gelu",
        scales=Scales(attention=scale),
    )


_MPT_ATTENTION: Mapping[str, object] = {
    "alibi": True,
    "alibi_bias_max": 8,
    "attn_type": "multihead_attention",
    "attn_uses_sequence_id": False,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
}
_MPT: Mapping[str, object] = {"embedding_fraction": 1.0, "expansion_ratio": 4, "logit_scale": None, "no_bias": True}


def _rotary(read: ConfigReader, *, base: float = 10000.0, share: float = 1.0) -> dict[str, Any]:
    """Returns the fields of rotary positions: those of ``rope_parameters`` go before ``base`` and ``share``."""
    for rope in (read.section("rope_parameters"), read.section("rope_scaling")):
        rope.refuse("rope_type", "default")
        rope.refuse("type", "default")
        share = rope.number("partial_rotary_factor", share)
    return {"rope_theta": read.rope_theta(base), "rotary_share": share}
