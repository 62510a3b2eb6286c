"""ModernBERT (Warner et al., 2024): queries, keys and values in one matrix, gate and up in another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.modernbert import POOLINGS, modernbert
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_BODY = "model."
_JOINED: Mapping[str, tuple[str, ...]] = {
    "attn.Wqkv": ("attention.query", "attention.key", "attention.value"),
    "mlp.Wi": ("ffn.gate", "ffn.up"),
}
"""A matrix of theirs, and those of ours that lie in it one after the other."""
_BLOCK = {"attention.out": "attn.Wo", "ffn_norm": "mlp_norm", "ffn.down": "mlp.Wo"}
SPARE = re.compile(r"^decoder\.weight$")
"""A copy of the embedding where they are tied."""


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    read.refuse("quantization_config", None)
    return modernbert(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape; versions 4 and 5 keep positions and windows elsewhere.

    Rates of dropout stand for training alone: there attention's is of its result too, and the feed-forward's inside.

    Raises:
        ValueError: ModernBERT in Hugging Face form has no grouped heads, no free head size, and one bias for
            attention.
    """
    if spec.kv_heads != spec.heads or spec.head_size * spec.heads != spec.width:
        raise ValueError("Hugging Face's modernbert has kv_heads = heads and head_size = width / heads only")
    if spec.qkv_biased != spec.output_biased:
        raise ValueError("Hugging Face's modernbert has one attention_bias: qkv_bias = output_bias")
    return {
        "architectures": [_architecture(spec)],
        "model_type": "modernbert",
        "attention_bias": spec.qkv_biased,
        "attention_dropout": spec.dropout.attention,
        "classifier_activation": "gelu",
        "classifier_bias": spec.bias,
        "classifier_dropout": 0.0,
        "classifier_pooling": next(name for name, ours in POOLINGS.items() if ours == spec.pooling),
        "decoder_bias": spec.head_bias,
        "embedding_dropout": spec.dropout.embedding,
        "hidden_activation": "gelu",
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "max_position_embeddings": spec.context_tokens,
        "mlp_bias": spec.bias,
        "mlp_dropout": spec.dropout.residual,
        "norm_bias": spec.norm_bias,
        "norm_eps": spec.norm_epsilon,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "tie_word_embeddings": spec.tied,
        "vocab_size": spec.vocabulary,
        # Else they would be tokens of the published vocabulary, which a smaller one has not.
        **dict.fromkeys(("bos_token_id", "cls_token_id", "eos_token_id", "pad_token_id", "sep_token_id")),
        **_positions(spec),
    }


def _architecture(spec: ModelSpec) -> str:
    if spec.makes_logits:
        return "ModernBertForMaskedLM"
    if not spec.classes:
        return "ModernBertModel"
    return f"ModernBertFor{'Sequence' if spec.pooler else 'Token'}Classification"


def _positions(spec: ModelSpec) -> dict[str, Any]:
    """Returns windows and rotary bases, as transformers 5 has them, and as 4 had where it could."""
    whole = [layer for layer in range(spec.layers) if spec.window_of(layer) is None]
    own = spec.rope_theta if spec.window_rope_theta is None else spec.window_rope_theta
    every = whole[1] if len(whole) > 1 else spec.layers
    keys: dict[str, Any] = {"global_rope_theta": spec.rope_theta, "local_rope_theta": own}
    if whole == list(range(0, spec.layers, every)):
        keys["global_attn_every_n_layers"] = every
    if spec.window_tokens is not None:
        keys["local_attention"] = spec.window_tokens
    return keys | {
        "layer_types": ["full_attention" if n in whole else "sliding_attention" for n in range(spec.layers)],
        "rope_parameters": {
            "full_attention": {"rope_theta": spec.rope_theta, "rope_type": "default"},
            "sliding_attention": {"rope_theta": own, "rope_type": "default"},
        },
    }


def _modules(spec: ModelSpec) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yields our modules that are one of theirs, its name there, and whether it has a bias."""
    body = _BODY if spec.classes or spec.makes_logits else ""
    yield ("embedding_norm",), f"{body}embeddings.norm", spec.norm_bias
    for layer in range(spec.layers):
        ours, theirs = f"blocks.{layer}.", f"{body}layers.{layer}."
        if layer or spec.first_norm:
            yield (f"{ours}attention_norm",), f"{theirs}attn_norm", spec.norm_bias
        for whole, parts in _JOINED.items():
            biased = spec.qkv_biased if whole.startswith("attn") else spec.bias
            yield tuple(ours + part for part in parts), theirs + whole, biased
        for part, name in _BLOCK.items():
            biased = spec.norm_bias if "norm" in part else spec.output_biased if "attention" in part else spec.bias
            yield (ours + part,), theirs + name, biased
    yield ("norm",), f"{body}final_norm", spec.norm_bias
    if spec.transforms:
        yield ("transform",), "head.dense", spec.bias
        yield ("transform_norm",), "head.norm", spec.norm_bias
    if spec.classes:
        yield ("head",), "classifier", True
    elif spec.makes_logits and not spec.tied:
        yield ("head",), "decoder", spec.head_bias


def _names(spec: ModelSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields our names of parameters that are one of theirs, and its name there."""
    yield ("embedding",), f"{_BODY if spec.classes or spec.makes_logits else ''}embeddings.tok_embeddings.weight"
    for ours, theirs, biased in _modules(spec):
        for kind in ("weight", *(("bias",) if biased else ())):
            yield tuple(f"{name}.{kind}" for name in ours), f"{theirs}.{kind}"
    if spec.makes_logits and spec.tied and spec.head_bias:
        yield ("head_bias",), "decoder.bias"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights in Hugging Face's form."""
    import torch  # a recipe is checked by ``to_config`` before torch is needed

    return {
        theirs: weights[ours[0]] if len(ours) == 1 else torch.cat([weights[name] for name in ours])
        for ours, theirs in _names(spec)
    }


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights in our form; a bare encoder's names are taken too.

    Raises:
        KeyError: a weight is missing; names it.
    """
    bare = "embeddings.tok_embeddings.weight" in weights
    converted: dict[str, Tensor] = {}
    for ours, theirs in _names(spec):
        whole = weights[theirs.removeprefix(_BODY) if bare else theirs]
        parts = (whole,) if len(ours) == 1 else (part.contiguous() for part in whole.chunk(len(ours)))
        converted |= dict(zip(ours, parts, strict=True))
    return converted
