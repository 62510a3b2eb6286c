"""ModernBERT (Warner et al., 2024, arXiv 2412.13663): norms before, rotary positions, windows in most layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.encoders import classes_of
from trainwright.spec.families.family import ENCODER, QKV, Family
from trainwright.spec.families.rmsnorm import windows
from trainwright.spec.model import ModelSpec

WINDOW_TOKENS = 128
EVERY = 3
"""Of so many layers the first sees all tokens."""
WINDOW_THETA = 10_000.0
THETA = 160_000.0
_SHAPE: dict[str, Any] = {
    "norm_bias": False,
    "head_bias": True,
    "embedding_norm": True,
    "first_norm": False,
    "head_transform": True,
}
_LAYER_KINDS = ("full_attention", "sliding_attention")
POOLINGS = {"cls": "first", "mean": "mean"}


def _complete(spec: ModelSpec) -> ModelSpec:
    layers = tuple(layer for layer in range(spec.layers) if layer % EVERY)
    spec = replace(spec, **_SHAPE, pooling="mean")
    if not layers:
        return spec
    return replace(spec, window_tokens=WINDOW_TOKENS, window_layers=layers, window_rope_theta=WINDOW_THETA)


MODERNBERT = Family(
    gated=True,
    norm="layernorm",
    positions="rope",
    bias=False,
    activation="gelu",
    tied=True,
    ffn_width=lambda width: 3 * width // 2,
    kind="encoder",
    complete=_complete,
    joined=(*QKV, ("gate", "up")),
    network=ENCODER,
    huggingface="trainwright.model.families.modernbert",
)
"""As the published ones are: classes are told of the mean of a document's tokens."""


def modernbert(read: ConfigReader) -> ModelSpec:
    """ModernBERT under one of its heads; without a name it predicts masked tokens."""
    read.refuse("hidden_activation", "gelu")
    read.refuse("classifier_activation", "gelu")
    read.refuse("rope_scaling", None)
    width, heads = read.integer("hidden_size", 768), read.integer("num_attention_heads", 12)
    bias = read.flag("mlp_bias", False)
    read.refuse("classifier_bias", bias)
    attention_bias = read.flag("attention_bias", False)
    own = None if attention_bias == bias else attention_bias
    shape = _SHAPE | {"norm_bias": read.flag("norm_bias", False), "head_bias": read.flag("decoder_bias", True)}
    return ModelSpec(
        family="modernbert",
        kind="encoder",
        layers=read.integer("num_hidden_layers", 22),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=read.head_size(width, heads),
        ffn_width=read.integer("intermediate_size", 1152),
        vocabulary=read.integer("vocab_size", 50368),
        context_tokens=read.integer("max_position_embeddings", 8192),
        tied=read.flag("tie_word_embeddings", True),
        gated=True,
        norm="layernorm",
        norm_epsilon=read.number("norm_eps", 1e-5),
        positions="rope",
        bias=bias,
        qkv_bias=own,
        output_bias=own,
        activation="gelu",
        pooling="mean" if read.word("classifier_pooling", "cls", tuple(POOLINGS)) == "mean" else "first",
        **shape,
        **_positions(read),
        **_head(read),
    )


def _positions(read: ConfigReader) -> dict[str, Any]:
    """Returns windows, and rotary bases from where transformers 5 keeps them or where 4 did."""
    layers, kinds = read.integer("num_hidden_layers", 22), read.names("layer_types")
    if kinds is not None and (len(kinds) != layers or not set(kinds) <= set(_LAYER_KINDS)):
        raise read.unsupported("layer_types", list(kinds), f"{layers} of {', '.join(_LAYER_KINDS)}")
    every = read.integer("global_attn_every_n_layers", EVERY)
    whole, narrow = (read.section("rope_parameters").section(kind) for kind in _LAYER_KINDS)
    for section in (whole, narrow):
        section.refuse("rope_type", "default")
    theta = whole.number("rope_theta", read.number("global_rope_theta", THETA))
    local = read.optional_number("local_rope_theta", WINDOW_THETA) or theta  # null: as in the other layers
    tokens = read.integer("local_attention", WINDOW_TOKENS)
    fields = windows(read, tokens, [layer for layer in range(layers) if layer % every])
    if fields:
        fields["window_rope_theta"] = narrow.number("rope_theta", local)
    return {"rope_theta": theta, **fields}


def _head(read: ConfigReader) -> dict[str, Any]:
    """Returns what stands on the encoder, by the architecture's name."""
    name = (read.names("architectures") or ("ModernBertForMaskedLM",))[0]
    classes = classes_of(read)
    heads: dict[str, dict[str, Any]] = {
        "ModernBertForMaskedLM": {},
        "ModernBertForSequenceClassification": {"pooler": True, **classes},
        "ModernBertForTokenClassification": classes,
        "ModernBertForQuestionAnswering": classes,
        "ModernBertModel": {"language_head": False},
    }
    if name not in heads:
        raise read.unsupported("architectures", name, ", ".join(heads))
    return heads[name]
