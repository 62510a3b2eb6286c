"""GPT-2 (Radford et al., 2019): LayerNorm, learned positions, biases, GELU, tied embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.spec.families.family import QKV, Family
from trainwright.spec.families.llama import decoder_head
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

FAMILY = Family(
    gated=False,
    norm="layernorm",
    positions="learned",
    bias=True,
    activation="gelu_tanh",
    tied=True,
    ffn_width=lambda width: 4 * width,
    huggingface="trainwright.model.families.gpt2",
    joined=QKV,
)


def gpt2(read: ConfigReader) -> ModelSpec:
    """Returns the shape under GPT-2's own keys."""
    head = decoder_head(read, tokens=True)
    read.refuse("add_cross_attention", False)
    width, heads = read.integer("n_embd"), read.integer("n_head")
    return ModelSpec(
        family="gpt2",
        layers=read.integer("n_layer"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=read.head_size(width, heads),
        ffn_width=read.integer("n_inner", 4 * width),
        vocabulary=read.integer("vocab_size"),
        context_tokens=read.integer("n_positions", 1024),
        tied=read.flag("tie_word_embeddings", True),
        gated=False,
        norm="layernorm",
        norm_epsilon=read.number("layer_norm_epsilon", 1e-5),
        positions="learned",
        rope_theta=10000.0,
        bias=True,
        activation=read.activation("activation_function", "gelu_new"),
        **head,
    )
