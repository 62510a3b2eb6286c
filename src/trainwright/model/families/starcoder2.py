"""StarCoder2 (Lozhkov et al., 2024): grouped heads, rotary positions, LayerNorm, biases, a plain feed-forward."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, activation_of, config_of, config_reader
from trainwright.spec.families.layernorm import starcoder2
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="model.",
    tables={"embedding": "embed_tokens.weight"},
    norms={"norm": "norm"},
    blocks="layers",
    modules={
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn.up": "mlp.c_fc",
        "ffn.down": "mlp.c_proj",
    },
)
from_config = config_reader(starcoder2)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    config = {
        "architectures": ["Starcoder2"],
        "model_type": "starcoder2",
        "attention_dropout": spec.dropout.attention,
        "embedding_dropout": spec.dropout.embedding,
        "hidden_act": activation_of(spec),
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "max_position_embeddings": spec.context_tokens,
        "norm_epsilon": spec.norm_epsilon,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "residual_dropout": spec.dropout.residual,
        "rope_theta": spec.rope_theta,
        "sliding_window": spec.window_tokens,
        "use_bias": spec.bias,
    }
    return config_of(spec, config, starcoder2)
