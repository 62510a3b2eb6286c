"""OPT (Zhang et al., 2022): learned positions behind two rows that are never used, ReLU, biases."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, activation_of, config_of, config_reader
from trainwright.spec.families.layernorm import opt
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="model.",
    tables={"embedding": "decoder.embed_tokens.weight", "positions": "decoder.embed_positions.weight"},
    norms={"norm": "decoder.final_layer_norm"},
    blocks="decoder.layers",
    modules={
        "attention_norm": "self_attn_layer_norm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.out_proj",
        "ffn_norm": "final_layer_norm",
        "ffn.up": "fc1",
        "ffn.down": "fc2",
    },
)
from_config = config_reader(opt)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    config = {
        "architectures": ["OPT"],
        "model_type": "opt",
        "activation_function": activation_of(spec),
        "attention_dropout": spec.dropout.attention,
        "do_layer_norm_before": True,
        "dropout": spec.dropout.residual,
        "enable_bias": spec.bias,
        "ffn_dim": spec.ffn_width,
        "hidden_size": spec.width,
        "max_position_embeddings": spec.context_tokens,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "word_embed_proj_dim": spec.width,
    }
    return config_of(spec, config, opt)
