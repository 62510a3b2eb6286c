"""The form that BERT and RoBERTa share in Hugging Face's libraries: names of weights, and keys of configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_STEM = {
    "embedding": "embeddings.word_embeddings.weight",
    "positions": "embeddings.position_embeddings.weight",
    "segments": "embeddings.token_type_embeddings.weight",
    "embedding_norm.weight": "embeddings.LayerNorm.weight",
    "embedding_norm.bias": "embeddings.LayerNorm.bias",
}
_BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
_OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""Names of a norm's parameters in checkpoints that were converted from TensorFlow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadNames:
    """What the heads of one family are called; ``.weight`` and ``.bias`` follow all but ``body`` and ``tied_bias``."""

    body: str
    transform: str
    transform_norm: str
    decoder: str
    tied_bias: str
    """Of the language head where its matrix is the embedding; else the decoder has its own."""
    classifier_pooler: str
    """Of a classifier of sequences; of a bare encoder the pooler is the body's own."""
    classifier: str
    """Of sequences."""
    token_classifier: str


def names(spec: ModelSpec, of: HeadNames) -> Iterator[tuple[str, str]]:
    """Yields our name and Hugging Face's of each parameter of a shape."""
    body = f"{of.body}." if spec.classes or spec.makes_logits else ""
    for ours, theirs in _STEM.items():
        if ours != "segments" or spec.segments:
            yield ours, body + theirs
    pairs = [
        (f"blocks.{n}.{ours}", f"{body}encoder.layer.{n}.{theirs}")
        for n in range(spec.layers)
        for ours, theirs in _BLOCK.items()
    ]
    if spec.pooler:
        pairs.append(("pooler", of.classifier_pooler if spec.classes else "pooler.dense"))
    if spec.makes_logits:
        pairs += [("transform", of.transform), ("transform_norm", of.transform_norm)]
        if spec.tied:
            yield "head_bias", of.tied_bias
        else:
            pairs.append(("head", of.decoder))
    if spec.classes:
        pairs.append(("head", of.classifier if spec.pooler else of.token_classifier))
    for ours, theirs in pairs:
        for kind in ("weight", "bias"):
            yield f"{ours}.{kind}", f"{theirs}.{kind}"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec, of: HeadNames) -> dict[str, Tensor]:
    """Our weights under Hugging Face names; shapes are the same."""
    return {theirs: weights[ours] for ours, theirs in names(spec, of)}


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec, of: HeadNames) -> dict[str, Tensor]:
    """Hugging Face weights under our names; an encoder's own names (without the body's) and old ones are taken too.

    Raises:
        KeyError: a weight is missing; names it.
    """

    def weight(name: str) -> Tensor:
        bare = name.removeprefix(f"{of.body}.")
        for new, old in {"": "", **_OLD}.items():
            for each in (name, bare):
                candidate = each.removesuffix(new) + old if new and each.endswith(new) else each
                if candidate in weights:
                    return weights[candidate]
        return weights[name]

    return {ours: weight(theirs) for ours, theirs in names(spec, of)}


def check(read: ConfigReader) -> None:
    """Refuses what changes the arithmetic and is not computed.

    Raises:
        RecipeError: names the key.
    """
    read.refuse("hidden_act", "gelu")
    read.refuse("quantization_config", None)
    read.refuse("chunk_size_feed_forward", 0)


def to_config(spec: ModelSpec, *, kind: str, prefix: str) -> dict[str, Any]:
    """Returns the keys that both families have.

    Raises:
        ValueError: they have no grouped heads and no free head size, and one rate for all that is not attention's.
    """
    if spec.kv_heads != spec.heads or spec.head_size * spec.heads != spec.width:
        raise ValueError(f"Hugging Face's {kind} has kv_heads = heads and head_size = width / heads only")
    if spec.dropout.embedding != spec.dropout.residual:
        raise ValueError(f"Hugging Face's {kind} has one rate: model.dropout.embedding = model.dropout.residual")
    if spec.makes_logits:
        head = "ForMaskedLM"
    elif spec.classes:
        head = "ForSequenceClassification" if spec.pooler else "ForTokenClassification"
    else:
        head = "Model"
    return {
        "architectures": [prefix + head],
        "model_type": kind,
        "attention_probs_dropout_prob": spec.dropout.attention,
        "classifier_dropout": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": spec.dropout.residual,
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "layer_norm_eps": spec.norm_epsilon,
        "max_position_embeddings": spec.context_tokens + spec.extra_positions,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "tie_word_embeddings": spec.tied,
        "type_vocab_size": spec.segments,
        "vocab_size": spec.vocabulary,
    } | ({} if spec.pooler or head != "Model" else {"add_pooling_layer": False})
