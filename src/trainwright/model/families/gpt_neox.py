"""GPT-NeoX (Black et al., 2022) and Pythia: attention and feed-forward side by side, partly rotated heads, biases."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, activation_of, config_of, config_reader
from trainwright.spec.families.layernorm import gpt_neox
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="gpt_neox.",
    tables={"embedding": "embed_in.weight"},
    norms={"norm": "final_layer_norm"},
    blocks="layers",
    modules={
        "attention_norm": "input_layernorm",
        "attention.out": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn.up": "mlp.dense_h_to_4h",
        "ffn.down": "mlp.dense_4h_to_h",
    },
    joined="attention.query_key_value",
    head="embed_out",
    also={"embed_out.weight": "lm_head.weight"},
)
from_config = config_reader(gpt_neox)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    config = {
        "architectures": ["GPTNeoX"],
        "model_type": "gpt_neox",
        "attention_bias": spec.qkv_biased,
        "attention_dropout": spec.dropout.attention,
        "hidden_act": activation_of(spec),
        "hidden_dropout": spec.dropout.residual,
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "layer_norm_eps": spec.norm_epsilon,
        "max_position_embeddings": spec.context_tokens,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "rotary_emb_base": spec.rope_theta,
        "rotary_pct": spec.rotary_share,
        "use_parallel_residual": spec.parallel_residual,
    }
    return config_of(spec, config, gpt_neox)
