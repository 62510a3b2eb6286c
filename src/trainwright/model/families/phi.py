"""Phi-1.5 and Phi-2: attention and feed-forward side by side behind one norm, half of a head rotated, a head's bias."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, config_of, config_reader
from trainwright.spec.families.layernorm import phi
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="model.",
    tables={"embedding": "embed_tokens.weight"},
    norms={"norm": "final_layernorm"},
    blocks="layers",
    modules={
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.query_norm": "self_attn.q_layernorm",
        "attention.key_norm": "self_attn.k_layernorm",
        "attention.out": "self_attn.dense",
        "ffn.up": "mlp.fc1",
        "ffn.down": "mlp.fc2",
    },
)
from_config = config_reader(phi)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf
ACTIVATIONS = {"gelu_tanh": "gelu_new"}
"""The name by which every version of transformers knows it in this family."""


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    config = {
        "architectures": ["Phi"],
        "model_type": "phi",
        "attention_dropout": spec.dropout.attention,
        "embd_pdrop": spec.dropout.embedding,
        "hidden_act": ACTIVATIONS.get(spec.activation, spec.activation),
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "layer_norm_eps": spec.norm_epsilon,
        "max_position_embeddings": spec.context_tokens,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "partial_rotary_factor": spec.rotary_share,
        "qk_layernorm": spec.qk_norm,
        "resid_pdrop": spec.dropout.residual,
        "rope_theta": spec.rope_theta,
    }
    return config_of(spec, config, phi)
