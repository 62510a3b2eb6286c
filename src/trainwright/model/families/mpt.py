"""MPT (MosaicML, 2023): ALiBi, no biases, not in the norms either; queries, keys and values in one matrix."""

from __future__ import annotations

from typing import Any

from trainwright.model.parts.names import Names, config_of, config_reader
from trainwright.spec.families.layernorm import mpt
from trainwright.spec.model import ModelSpec

NAMES = Names(
    body="transformer.",
    tables={"embedding": "wte.weight"},
    norms={"norm": "norm_f"},
    blocks="blocks",
    modules={
        "attention_norm": "norm_1",
        "attention.out": "attn.out_proj",
        "ffn_norm": "norm_2",
        "ffn.up": "ffn.up_proj",
        "ffn.down": "ffn.down_proj",
    },
    joined="attn.Wqkv",
    by_head=False,
)
from_config = config_reader(mpt)
to_hf, from_hf = NAMES.to_hf, NAMES.from_hf


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: this family has no such shape; names the field.
    """
    # transformers 5 takes whole numbers alone for attention's rate of dropout: it is left out.
    config = {
        "architectures": ["Mpt"],
        "model_type": "mpt",
        "attn_config": {"alibi": True, "softmax_scale": spec.scales.attention},
        "d_model": spec.width,
        "emb_pdrop": spec.dropout.embedding,
        "expansion_ratio": 4,
        "layer_norm_epsilon": spec.norm_epsilon,
        "max_seq_len": spec.context_tokens,
        "n_heads": spec.heads,
        "n_layers": spec.layers,
        "no_bias": True,
        "resid_pdrop": spec.dropout.residual,
    }
    return config_of(spec, config, mpt)
