"""Encoders of text, and the residual convolutional network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.family import ENCODER, Family
from trainwright.spec.families.resnet import stages_of
from trainwright.spec.model import ModelSpec

_BERT_LIKE: dict[str, Any] = {"head_bias": True, "post_norm": True, "embedding_norm": True, "final_norm": False}
ROBERTA_PADDING = 1
"""The id of padding in RoBERTa's vocabulary: positions are counted from the one after it."""


def _family(name: str, **different: Any) -> Family:
    return Family(
        gated=False,
        norm="layernorm",
        positions="learned",
        bias=True,
        activation="gelu",
        tied=True,
        ffn_width=lambda width: 4 * width,
        kind="encoder",
        complete=lambda spec: replace(spec, **_BERT_LIKE, **different),
        network=ENCODER,
        huggingface=f"trainwright.model.families.{name}",
    )


BERT = _family("bert", segments=2)
ROBERTA = _family("roberta", segments=1, extra_positions=ROBERTA_PADDING + 1)


def _bert_head(read: ConfigReader, prefix: str) -> dict[str, Any]:
    """Returns what stands on the encoder, by the architecture's name; without one it predicts masked tokens."""
    name = (read.names("architectures") or (f"{prefix}ForMaskedLM",))[0]
    heads: dict[str, dict[str, Any]] = {
        f"{prefix}ForMaskedLM": {},
        f"{prefix}ForPreTraining": {"language_head": True, "pooler": True, "classes": 2},
        f"{prefix}ForNextSentencePrediction": {"pooler": True, "classes": 2},
        f"{prefix}ForSequenceClassification": {"pooler": True, **classes_of(read)},
        f"{prefix}ForTokenClassification": classes_of(read),
        f"{prefix}ForQuestionAnswering": {"classes": read.labels()},
        f"{prefix}Model": {"language_head": False, "pooler": read.flag("add_pooling_layer", True)},
    }
    if name not in heads:
        raise read.unsupported("architectures", name, ", ".join(heads))
    return heads[name]


def classes_of(read: ConfigReader) -> dict[str, Any]:
    """Returns the fields of a head that tells classes alone."""
    return {"classes": read.labels(), "labels": read.label_names(), "language_head": False}


def bert(read: ConfigReader) -> ModelSpec:
    """BERT (Devlin et al., 2018): norms behind each half of a block, learned positions, two segments."""
    return _bert_like(read, "bert", "Bert", context_tokens=read.integer("max_position_embeddings", 512))


def roberta(read: ConfigReader) -> ModelSpec:
    """RoBERTa (Liu et al., 2019): BERT's network; positions up to the id of padding are never used."""
    positions, unused = read.integer("max_position_embeddings", 512), read.integer("pad_token_id", 1, least=0) + 1
    return _bert_like(read, "roberta", "Roberta", context_tokens=positions - unused, extra_positions=unused)


def _bert_like(
    read: ConfigReader, family: str, prefix: str, *, context_tokens: int, extra_positions: int = 0
) -> ModelSpec:
    read.refuse("is_decoder", False)
    read.refuse("add_cross_attention", False)
    read.refuse("position_embedding_type", "absolute")
    width, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    return ModelSpec(
        family=family,
        kind="encoder",
        layers=read.integer("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=read.head_size(width, heads),
        ffn_width=read.integer("intermediate_size"),
        vocabulary=read.integer("vocab_size"),
        tied=read.flag("tie_word_embeddings", True),
        gated=False,
        norm="layernorm",
        norm_epsilon=read.number("layer_norm_eps", 1e-12),
        positions="learned",
        rope_theta=10000.0,
        bias=True,
        head_bias=True,
        activation=read.activation("hidden_act", "gelu"),
        post_norm=True,
        embedding_norm=True,
        final_norm=False,
        segments=read.integer("type_vocab_size", 2),
        context_tokens=context_tokens,
        extra_positions=extra_positions,
        **_bert_head(read, prefix),
    )


def resnet(read: ConfigReader) -> ConvNetSpec:
    """ResNet (He et al., 2015)."""
    return ConvNetSpec(
        **stages_of(read),
        image_size=read.square("image_size", 224),
        channels=read.integer("num_channels", 3),
        classes=read.labels(),
    )
