"""Llama (Touvron et al., 2023) and its like: RMSNorm, rotary positions, SwiGLU, grouped heads, no biases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.query.weight": "self_attn.q_proj.weight",
    "attention.key.weight": "self_attn.k_proj.weight",
    "attention.value.weight": "self_attn.v_proj.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn.gate.weight": "mlp.gate_proj.weight",
    "ffn.up.weight": "mlp.up_proj.weight",
    "ffn.down.weight": "mlp.down_proj.weight",
}


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    read.refuse("attention_bias", False)
    read.refuse("mlp_bias", False)
    read.refuse("hidden_act", "silu")
    read.refuse("quantization_config", None)
    for rope in (read.section("rope_parameters"), read.section("rope_scaling")):
        rope.refuse("rope_type", "default")
        rope.refuse("type", "default")
        rope.refuse("partial_rotary_factor", 1.0)
        rope.refuse("full_attention", None)  # settings of windowed and whole layers apart
    return llama(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5."""
    # No Llama of transformers has these two: it keeps them under GPT-2's names, and does not apply them.
    others = {"embd_pdrop": spec.dropout.embedding, "resid_pdrop": spec.dropout.residual}
    return {name: rate for name, rate in others.items() if rate} | {
        "architectures": ["LlamaForSequenceClassification" if spec.classes else "LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": spec.dropout.attention,
        "head_dim": spec.head_size,
        "hidden_act": "silu",
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "max_position_embeddings": spec.context_tokens,
        "mlp_bias": False,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": spec.norm_epsilon,
        "rope_parameters": {"rope_theta": spec.rope_theta, "rope_type": "default"},
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tied,
        "vocab_size": spec.vocabulary,
    }


def _names(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    yield "embedding", "model.embed_tokens.weight"
    for layer in range(spec.layers):
        for ours, theirs in _BLOCK.items():
            yield f"blocks.{layer}.{ours}", f"model.layers.{layer}.{theirs}"
    yield "norm.weight", "model.norm.weight"
    if spec.classes:
        yield "head.weight", "score.weight"
    elif not spec.tied:
        yield "head.weight", "lm_head.weight"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights under Hugging Face names; shapes are the same."""
    return {theirs: weights[ours] for ours, theirs in _names(spec)}


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights under our names.

    Raises:
        KeyError: a weight is missing; names it.
    """
    return {ours: weights[theirs] for ours, theirs in _names(spec)}
