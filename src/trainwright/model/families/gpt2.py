"""GPT-2 (Radford et al., 2019): LayerNorm, learned positions, biases, GELU, tied embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.model.families.llama import head_class
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.gpt2 import gpt2
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_PLAIN = {
    "attention_norm.weight": "ln_1.weight",
    "attention_norm.bias": "ln_1.bias",
    "attention.out.bias": "attn.c_proj.bias",
    "ffn_norm.weight": "ln_2.weight",
    "ffn_norm.bias": "ln_2.bias",
    "ffn.up.bias": "mlp.c_fc.bias",
    "ffn.down.bias": "mlp.c_proj.bias",
}
_TRANSPOSED = {
    "attention.out.weight": "attn.c_proj.weight",
    "ffn.up.weight": "mlp.c_fc.weight",
    "ffn.down.weight": "mlp.c_proj.weight",
}
_QKV = ("query", "key", "value")


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    read.refuse("activation_function", "gelu_new")
    read.refuse("scale_attn_weights", True)
    read.refuse("scale_attn_by_inverse_layer_idx", False)
    read.refuse("quantization_config", None)
    return gpt2(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: GPT-2 in Hugging Face form has no grouped heads and no free head size.
    """
    if spec.kv_heads != spec.heads or spec.head_size * spec.heads != spec.width:
        raise ValueError("Hugging Face's gpt2 has kv_heads = heads and head_size = width / heads only")
    return {
        "architectures": [f"GPT2{head_class(spec)}" if spec.classes else "GPT2LMHeadModel"],
        **({"classifier_dropout": 0.0} if spec.token_classes else {}),
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "attn_pdrop": spec.dropout.attention,
        "embd_pdrop": spec.dropout.embedding,
        "layer_norm_epsilon": spec.norm_epsilon,
        "n_embd": spec.width,
        "n_head": spec.heads,
        "n_inner": spec.ffn_width,
        "n_layer": spec.layers,
        "n_positions": spec.context_tokens,
        "resid_pdrop": spec.dropout.residual,
        "tie_word_embeddings": spec.tied,
        "vocab_size": spec.vocabulary,
    }


def _whole(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    yield "embedding", "transformer.wte.weight"
    yield "positions", "transformer.wpe.weight"
    yield "norm.weight", "transformer.ln_f.weight"
    yield "norm.bias", "transformer.ln_f.bias"
    if spec.token_classes:
        yield "head.weight", "classifier.weight"
        yield "head.bias", "classifier.bias"
    elif spec.classes:
        yield "head.weight", "score.weight"
    elif not spec.tied:
        yield "head.weight", "lm_head.weight"


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights in Hugging Face's form: query, key and value joined, matrices as (in, out)."""
    import torch  # a recipe is checked by ``to_config`` before torch is needed

    converted = {theirs: weights[ours] for ours, theirs in _whole(spec)}
    for layer in range(spec.layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            joined = torch.cat([weights[f"{ours}attention.{part}.{kind}"] for part in _QKV])
            converted[f"{theirs}attn.c_attn.{kind}"] = joined.T.contiguous() if kind == "weight" else joined
        converted |= {theirs + name: weights[ours + inner] for inner, name in _PLAIN.items()}
        converted |= {theirs + name: weights[ours + inner].T.contiguous() for inner, name in _TRANSPOSED.items()}
    return converted


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights in our form; the bare model's names (without ``transformer.``) are taken too.

    Raises:
        KeyError: a weight is missing; names it.
    """
    bare = "wte.weight" in weights

    def weight(name: str) -> Tensor:
        return weights[name.removeprefix("transformer.") if bare else name]

    converted = {ours: weight(theirs) for ours, theirs in _whole(spec)}
    for layer in range(spec.layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            joined = weight(f"{theirs}attn.c_attn.{kind}")
            parts = (joined.T if kind == "weight" else joined).chunk(3)
            converted |= {
                f"{ours}attention.{name}.{kind}": part.contiguous() for name, part in zip(_QKV, parts, strict=True)
            }
        converted |= {ours + inner: weight(theirs + name) for inner, name in _PLAIN.items()}
        converted |= {ours + inner: weight(theirs + name).T.contiguous() for inner, name in _TRANSPOSED.items()}
    return converted
