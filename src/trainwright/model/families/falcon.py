"""Falcon (Almazrouei et al., 2023): 7B (one key head, one norm), 40B (few of them, two norms), RW (ALiBi, in turn)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.model.parts.names import Names, activation_of, config_of, config_reader
from trainwright.spec.families.layernorm import falcon
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

from_config = config_reader(falcon)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    new = _is_new(spec)
    config = {
        "architectures": ["Falcon"],
        "model_type": "falcon",
        "activation": activation_of(spec),
        "alibi": spec.positions == "alibi",
        "attention_dropout": spec.dropout.attention,
        "bias": spec.bias,
        "ffn_hidden_size": spec.ffn_width,
        "hidden_dropout": spec.dropout.residual,
        "hidden_size": spec.width,
        "layer_norm_epsilon": spec.norm_epsilon,
        "max_position_embeddings": spec.context_tokens,
        "multi_query": spec.kv_heads == 1,
        "new_decoder_architecture": new,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_kv_heads": spec.kv_heads if new else spec.heads,
        "num_ln_in_parallel_attn": spec.norms_per_block if new else None,
        "parallel_attn": spec.parallel_residual,
        "rope_theta": spec.rope_theta,
    }
    return config_of(spec, config, falcon)


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Returns our weights under the family's names."""
    return _names(spec).to_hf(weights, spec)


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Returns the family's weights under our names.

    Raises:
        KeyError: a weight is missing; names it.
    """
    return _names(spec).from_hf(weights, spec)


def _is_new(spec: ModelSpec) -> bool:
    """Returns whether it takes the second architecture: groups of heads, or two norms side by side."""
    return spec.kv_heads not in (1, spec.heads) or (spec.parallel_residual and spec.norms_per_block == 2)


def _names(spec: ModelSpec) -> Names:
    two = spec.parallel_residual and spec.norms_per_block == 2
    return Names(
        body="transformer.",
        tables={"embedding": "word_embeddings.weight"},
        norms={"norm": "ln_f"},
        blocks="h",
        modules={
            "attention_norm": "ln_attn" if two else "input_layernorm",
            "attention.out": "self_attention.dense",
            "ffn_norm": "ln_mlp" if two else "post_attention_layernorm",
            "ffn.up": "mlp.dense_h_to_4h",
            "ffn.down": "mlp.dense_4h_to_h",
        },
        joined="self_attention.query_key_value",
    )
