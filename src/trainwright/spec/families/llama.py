"""Llama and the decoders that differ from it in a few settings: RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.spec.families.family import Family
from trainwright.spec.families.rotary import rope_scaling
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

FAMILY = Family(
    gated=True,
    norm="rmsnorm",
    positions="rope",
    bias=False,
    activation="silu",
    tied=False,
    ffn_width=lambda width: -(-(8 * width // 3) // 64) * 64,
    huggingface="trainwright.model.families.llama",
)

_OTHER_HEADS = ("ForQuestionAnswering",)
_OF_TOKENS = "ForTokenClassification"


def decoder_head(read: ConfigReader, *, tokens: bool = False) -> dict[str, Any]:
    """Returns what a decoder's head adds to its shape: nothing where it is over the vocabulary, else its classes.

    Args:
        read: the configuration.
        tokens: whether classes of tokens are known of this family.

    Raises:
        RecipeError: the head is of no kind that is known.
    """
    names = read.names("architectures") or ()
    for name in names:
        if name.endswith(_OTHER_HEADS if tokens else (*_OTHER_HEADS, _OF_TOKENS)):
            raise read.unsupported("architectures", name, "...ForCausalLM or ...ForSequenceClassification")
    of_tokens = any(name.endswith(_OF_TOKENS) for name in names)
    if of_tokens or any(name.endswith("ForSequenceClassification") for name in names):
        classes = {"classes": read.labels(), "labels": read.label_names(), "language_head": False}
        return classes | ({"token_classes": True} if of_tokens else {})
    return {}


def llama_like(read: ConfigReader, family: str, **different: Any) -> ModelSpec:
    """Returns the shape under Llama's keys, with what is ``different``."""
    head = decoder_head(read, tokens=True)
    width, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    settings: dict[str, Any] = {
        "kv_heads": read.integer("num_key_value_heads", heads),
        "ffn_width": read.integer("intermediate_size"),
        "context_tokens": read.integer("max_position_embeddings", 2048),
        "tied": read.flag("tie_word_embeddings", False),
        "norm_epsilon": read.number("rms_norm_eps", 1e-6),
        "rope_theta": read.rope_theta(),
    }
    if "rope_scaling" not in different:
        settings["rope_scaling"] = rope_scaling(read)
    if "head_size" not in different:
        settings["head_size"] = read.optional("head_dim") or read.head_size(width, heads)
    if "activation" not in different:
        settings["activation"] = read.activation("hidden_act", "silu")
    if "bias" not in different:
        attention, settings["bias"] = read.flag("attention_bias", False), read.flag("mlp_bias", False)
        if attention != settings["bias"]:
            settings |= {"qkv_bias": attention, "output_bias": attention}
    fixed: dict[str, Any] = {"gated": True, "norm": "rmsnorm", "positions": "rope"}
    return ModelSpec(
        family=family,
        layers=read.integer("num_hidden_layers"),
        width=width,
        heads=heads,
        vocabulary=read.integer("vocab_size"),
        **(fixed | settings | head | different),
    )


def refuse_partial_rotation(read: ConfigReader) -> None:
    """Raises a RecipeError where a part of each head is rotated, or windowed and whole layers have settings apart."""
    for rope in (read.section("rope_parameters"), read.section("rope_scaling")):
        rope.refuse("partial_rotary_factor", 1.0)
        rope.refuse("full_attention", None)


def llama(read: ConfigReader) -> ModelSpec:
    """Llama 1 to 3 (Touvron et al., 2023)."""
    refuse_partial_rotation(read)
    return llama_like(read, "llama")
