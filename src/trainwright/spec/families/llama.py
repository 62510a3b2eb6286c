"""Llama and the decoders that differ from it in a few settings: RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

from typing import Any

from trainwright.spec.config_reader import ConfigReader
from trainwright.spec.model import ModelSpec

_OTHER_HEADS = ("Classification", "QuestionAnswering")


def language_model(read: ConfigReader) -> None:
    """Go on only where a decoder's head is over the vocabulary.

    Raises:
        RecipeError: it classifies.
    """
    for name in read.names("architectures") or ():
        if name.endswith(_OTHER_HEADS):
            raise read.unsupported("architectures", name, "a language model (...ForCausalLM)")


def llama_like(read: ConfigReader, family: str, **different: Any) -> ModelSpec:
    """The shape under Llama's keys, with what is ``different``."""
    language_model(read)
    width, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    settings: dict[str, Any] = {
        "kv_heads": read.integer("num_key_value_heads", heads),
        "ffn_width": read.integer("intermediate_size"),
        "context_tokens": read.integer("max_position_embeddings", 2048),
        "tied": read.flag("tie_word_embeddings", False),
        "norm_epsilon": read.number("rms_norm_eps", 1e-6),
        "rope_theta": read.rope_theta(),
    }
    if "head_size" not in different:
        settings["head_size"] = read.optional("head_dim") or read.head_size(width, heads)
    if "activation" not in different:
        settings["activation"] = read.activation("hidden_act", "silu")
    if "bias" not in different:
        attention, settings["bias"] = read.flag("attention_bias", False), read.flag("mlp_bias", False)
        if attention != settings["bias"]:
            settings |= {"qkv_bias": attention, "output_bias": attention}
    fixed: dict[str, Any] = {"gated": True, "norm": "rmsnorm", "positions": "rope"}
    return ModelSpec(
        family=family,
        layers=read.integer("num_hidden_layers"),
        width=width,
        heads=heads,
        vocabulary=read.integer("vocab_size"),
        **(fixed | settings | different),
    )


def llama(read: ConfigReader) -> ModelSpec:
    """Llama 1 to 3 (Touvron et al., 2023)."""
    return llama_like(read, "llama")
