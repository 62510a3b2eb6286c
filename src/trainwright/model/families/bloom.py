"""BLOOM (Scao et al., 2022): ALiBi, a norm behind the embedding, biases, queries with keys and values by head."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, config_of, config_reader
from trainwright.spec.families.layernorm import bloom
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="transformer.",
    tables={"embedding": "word_embeddings.weight"},
    norms={"embedding_norm": "word_embeddings_layernorm", "norm": "ln_f"},
    blocks="h",
    modules={
        "attention_norm": "input_layernorm",
        "attention.out": "self_attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn.up": "mlp.dense_h_to_4h",
        "ffn.down": "mlp.dense_4h_to_h",
    },
    joined="self_attention.query_key_value",
)
from_config = config_reader(bloom)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    config = {
        "architectures": ["Bloom"],
        "model_type": "bloom",
        "attention_dropout": spec.dropout.attention,
        "hidden_dropout": spec.dropout.residual,
        "hidden_size": spec.width,
        "layer_norm_epsilon": spec.norm_epsilon,
        "n_head": spec.heads,
        "n_layer": spec.layers,
        "seq_length": spec.context_tokens,
    }
    return config_of(spec, config, bloom)
