"""Llama (Touvron et al., 2023) and what its like have in common: names of weights and keys of configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.core.frozen import dataclass
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama
from trainwright.spec.families.rotary import rope_keys
from trainwright.spec.model import Activation, ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS: Mapping[Activation, str] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
}
"""Functions by our names and by those of transformers."""


TOKEN_HEAD = "ForTokenClassification"


def head_class(spec: ModelSpec) -> str:
    """Returns what the name of transformers' class of a decoder with this head ends with."""
    return TOKEN_HEAD if spec.token_classes else "ForSequenceClassification" if spec.classes else "ForCausalLM"


def nothing(spec: ModelSpec) -> dict[str, Any]:
    """Returns no keys of a configuration."""
    del spec
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaLike:
    """The Hugging Face form of a decoder whose weights have Llama's names; a family's module hands its methods on.

    Attributes:
        family: the ``model_type``.
        architecture: of its classes' names, what stands before ``ForCausalLM``.
        read: a configuration's shape, as the planner reads it too.
        refused: keys of which one value alone is computed here, with that value.
        keys: what a shape's configuration says beside Llama's own keys, or otherwise.
        of_tokens: whether transformers has a network of the family that tells classes of tokens.
    """

    family: str
    architecture: str
    read: Callable[[ConfigReader], ModelSpec]
    refused: tuple[tuple[str, Any], ...] = ()
    keys: Callable[[ModelSpec], dict[str, Any]] = nothing
    of_tokens: bool = True

    def from_config(self, config: Mapping[str, Any], *, where: str) -> ModelSpec:
        """Returns the shape that a Hugging Face configuration describes.

        Raises:
            RecipeError: a key is missing, or asks for something that this family does not compute.
        """
        read = ConfigReader(config, where=where)
        for key, value in (*self.refused, ("quantization_config", None)):
            read.refuse(key, value)
        return self.read(read)

    def to_config(self, spec: ModelSpec) -> dict[str, Any]:
        """Returns the Hugging Face configuration of a shape, readable by transformers 4 and 5.

        Raises:
            ValueError: the family has no classes of tokens there.
        """
        if spec.token_classes and not self.of_tokens:
            raise ValueError(f"Hugging Face's {self.family} has no {TOKEN_HEAD}")
        # No Llama of transformers has these two: it keeps them under GPT-2's names, and does not apply them.
        rates = {"embd_pdrop": spec.dropout.embedding, "resid_pdrop": spec.dropout.residual}
        common = {
            "architectures": [f"{self.architecture}{head_class(spec)}"],
            "model_type": self.family,
            "attention_dropout": spec.dropout.attention,
            "head_dim": spec.head_size,
            "hidden_act": ACTIVATIONS[spec.activation],
            "hidden_size": spec.width,
            "intermediate_size": spec.ffn_width,
            "max_position_embeddings": spec.context_tokens,
            "num_attention_heads": spec.heads,
            "num_hidden_layers": spec.layers,
            "num_key_value_heads": spec.kv_heads,
            "rms_norm_eps": spec.norm_epsilon,
            "tie_word_embeddings": spec.tied,
            "vocab_size": spec.vocabulary,
        }
        dropped = {name: rate for name, rate in rates.items() if rate}
        told = {"classifier_dropout": 0.0} if spec.token_classes else {}
        return dropped | common | told | rope_keys(spec) | self.keys(spec)

    def to_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Our weights under Hugging Face names; shapes are the same."""
        return {theirs: weights[ours] for ours, theirs in names(spec)}

    def from_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Hugging Face weights under our names.

        Raises:
            KeyError: a weight is missing; names it.
        """
        return {ours: weights[theirs] for ours, theirs in names(spec)}


def names(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields our name and Llama's of every weight of a shape."""
    yield "embedding", "model.embed_tokens.weight"
    inside = tuple(block_names(spec))
    for layer in range(spec.layers):
        for ours, theirs in inside:
            yield f"blocks.{layer}.{ours}", f"model.layers.{layer}.{theirs}"
    yield "norm.weight", "model.norm.weight"
    if spec.classes:
        yield "head.weight", "score.weight"
        if spec.token_classes:
            yield "head.bias", "score.bias"
    elif not spec.tied:
        yield "head.weight", "lm_head.weight"


def block_names(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields the same of one block, of whose matrices biases follow."""
    yield "attention_norm.weight", "input_layernorm.weight"
    if spec.norms_per_block == 4:
        yield "attention_out_norm.weight", "post_attention_layernorm.weight"
        yield "ffn_norm.weight", "pre_feedforward_layernorm.weight"
        yield "ffn_out_norm.weight", "post_feedforward_layernorm.weight"
    else:
        yield "ffn_norm.weight", "post_attention_layernorm.weight"
    if spec.qk_norm:
        yield "attention.query_norm.weight", "self_attn.q_norm.weight"
        yield "attention.key_norm.weight", "self_attn.k_norm.weight"
    qkv = spec.qkv_biased
    out = spec.output_biased
    for ours, theirs, bias in (
        ("attention.query", "self_attn.q_proj", qkv),
        ("attention.key", "self_attn.k_proj", qkv),
        ("attention.value", "self_attn.v_proj", qkv),
        ("attention.out", "self_attn.o_proj", out),
        ("ffn.gate", "mlp.gate_proj", spec.bias),
        ("ffn.up", "mlp.up_proj", spec.bias),
        ("ffn.down", "mlp.down_proj", spec.bias),
    ):
        yield f"{ours}.weight", f"{theirs}.weight"
        if bias:
            yield f"{ours}.bias", f"{theirs}.bias"


def attention_biases(spec: ModelSpec) -> dict[str, Any]:
    """Returns Llama's keys of biases."""
    return {"attention_bias": spec.qkv_biased, "mlp_bias": spec.bias}


_FORM = LlamaLike(family="llama", architecture="Llama", read=llama, keys=attention_biases)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
