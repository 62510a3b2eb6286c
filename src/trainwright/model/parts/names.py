"""``Names``: what a family of Hugging Face calls a decoder's parts, and how it joins queries, keys and values.

Shape legend: ``kv_heads``, ``group`` (query heads of one key head), ``head``, ``width``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import RecipeError
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.model import HEAD_FIELDS, ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_QKV = ("attention.query", "attention.key", "attention.value")
_OF_TASKS = frozenset(("family", "dropout", *HEAD_FIELDS)) - {"head_bias"}
"""Fields of a shape that a configuration need not say."""


def has_bias(spec: ModelSpec, module: str) -> bool:
    """Returns whether a matrix or a norm of the decoder, by its name in a block or outside, has a bias."""
    if module.endswith("norm"):
        return spec.norm == "layernorm" and spec.norm_bias
    own = spec.qkv_bias if module in _QKV else spec.output_bias if module == "attention.out" else None
    return spec.bias if own is None else own


def _exists(spec: ModelSpec, module: str) -> bool:
    """Returns whether a block of this shape has a module."""
    if module == "ffn_norm":
        return spec.norms_per_block > 1
    return spec.qk_norm or module not in ("attention.query_norm", "attention.key_norm")


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of a family.

    Attributes:
        body: what stands before all names of a network with a head, and before none of a bare one.
        tables: our parameters outside of blocks, without the body's part of their names.
        norms: our norms outside of blocks, the same.
        blocks: what stands before a block's number, the same.
        modules: our modules in a block.
        joined: the module that holds queries, keys and values; None: each has its own, in ``modules``.
        by_head: joined rows stand by key head: its queries, its key, its value; else all queries, keys, values.
        head: what holds the language head; classes have ``score``.
        also: other names under which some versions store a weight, by the one that is written.
    """

    body: str
    tables: Mapping[str, str]
    norms: Mapping[str, str]
    blocks: str
    modules: Mapping[str, str]
    joined: str | None = None
    by_head: bool = True
    head: str = "lm_head"
    also: Mapping[str, str] = field(default_factory=dict)

    def to_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Returns our weights under the family's names."""
        converted = {theirs: weights[ours] for ours, theirs in self._plain(spec)}
        for ours, theirs, kind in self._joined(spec):
            query, key, value = (weights[f"{ours}{name}.{kind}"] for name in _QKV)
            joined = joined_by_head(query, key, value, spec) if self.by_head else _stacked(query, key, value)
            converted[f"{theirs}.{kind}"] = joined
        return converted

    def from_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Returns the family's weights under our names; a bare network's names are taken too.

        Raises:
            KeyError: a weight is missing; names it.
        """
        bare = next(iter(self.tables.values())) in weights

        def weight(name: str) -> Tensor:
            name = name.removeprefix(self.body) if bare else name
            return weights[self.also[name] if self.also.get(name) in weights else name]

        converted = {ours: weight(theirs) for ours, theirs in self._plain(spec)}
        for ours, theirs, kind in self._joined(spec):
            whole = weight(f"{theirs}.{kind}")
            parts = parted_by_head(whole, spec) if self.by_head else _unstacked(whole, spec)
            converted |= {f"{ours}{name}.{kind}": part for name, part in zip(_QKV, parts, strict=True)}
        return converted

    def _plain(self, spec: ModelSpec) -> Iterator[tuple[str, str]]:
        """Yields our names beside theirs of all that is stored as we have it."""
        yield from ((ours, self.body + theirs) for ours, theirs in self.tables.items())
        modules = {ours: self.body + theirs for ours, theirs in self.norms.items()}
        for layer in range(spec.layers):
            there = f"{self.body}{self.blocks}.{layer}."
            here = (ours for ours in self.modules if _exists(spec, ours))
            modules |= {f"blocks.{layer}.{ours}": there + self.modules[ours] for ours in here}
        for ours, theirs in modules.items():
            yield f"{ours}.weight", f"{theirs}.weight"
            if has_bias(spec, ours.split(".", 2)[-1]):
                yield f"{ours}.bias", f"{theirs}.bias"
        if spec.classes:
            yield "head.weight", "score.weight"
        elif not spec.tied:
            yield "head.weight", f"{self.head}.weight"
        if spec.head_bias and not spec.classes:
            yield "head_bias", f"{self.head}.bias"

    def _joined(self, spec: ModelSpec) -> Iterator[tuple[str, str, str]]:
        """Yields of each block what stands before our names, their joined module, and ``weight`` or ``bias``."""
        if self.joined is None:
            return
        for layer in range(spec.layers):
            theirs = f"{self.body}{self.blocks}.{layer}.{self.joined}"
            for kind in ("weight", *("bias",) * has_bias(spec, "attention.query")):
                yield f"blocks.{layer}.", theirs, kind


def joined_by_head(query: Tensor, key: Tensor, value: Tensor, spec: ModelSpec) -> Tensor:
    """Returns rows (of a matrix, or elements of a bias) by key head: its queries', its key's, its value's."""
    group, rest = spec.heads // spec.kv_heads, query.shape[1:]
    joined = query.new_empty((spec.kv_heads, group + 2, spec.head_size, *rest))
    joined[:, :group] = query.reshape(spec.kv_heads, group, spec.head_size, *rest)
    joined[:, group] = key.reshape(spec.kv_heads, spec.head_size, *rest)
    joined[:, group + 1] = value.reshape(spec.kv_heads, spec.head_size, *rest)
    return joined.flatten(0, 2)


def parted_by_head(joined: Tensor, spec: ModelSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the rows of queries, of keys and of values out of those that ``joined_by_head`` gives."""
    group = spec.heads // spec.kv_heads
    heads = joined.reshape(spec.kv_heads, group + 2, spec.head_size, *joined.shape[1:])
    query, key, value = heads[:, :group].flatten(0, 2), heads[:, group].flatten(0, 1), heads[:, group + 1].flatten(0, 1)
    return query.contiguous(), key.contiguous(), value.contiguous()


def _stacked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    rows, keys = len(query), len(key)
    stacked = query.new_empty((rows + 2 * keys, *query.shape[1:]))
    stacked[:rows], stacked[rows : rows + keys], stacked[rows + keys :] = query, key, value
    return stacked


def _unstacked(joined: Tensor, spec: ModelSpec) -> tuple[Tensor, ...]:
    rows = [spec.heads * spec.head_size, *(spec.kv_heads * spec.head_size,) * 2]
    return tuple(part.contiguous() for part in joined.split(rows))


def activation_of(spec: ModelSpec) -> str:
    """Returns what transformers calls the function of the feed-forward."""
    return "gelu_pytorch_tanh" if spec.activation == "gelu_tanh" else spec.activation


def config_reader(read: Callable[[ConfigReader], ModelSpec]) -> Callable[..., ModelSpec]:
    """Returns ``from_config`` of a family whose shape ``read`` reads."""

    def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
        """Returns the shape a Hugging Face configuration describes.

        Raises:
            RecipeError: a key is missing, or asks for something this family does not compute.
        """
        reader = ConfigReader(config, where=where)
        reader.refuse("quantization_config", None)
        return read(reader)

    return from_config


def config_of(spec: ModelSpec, config: dict[str, Any], read: Callable[[ConfigReader], ModelSpec]) -> dict[str, Any]:
    """Returns a configuration with what every decoder's has, once it reads as the shape that it is made of.

    Args:
        spec: the shape.
        config: the family's own keys.
        read: what reads them.

    Raises:
        ValueError: the family has no such shape; names the field.
    """
    if spec.token_classes:
        raise ValueError(f"classes of tokens are not known here of {config['model_type']}: take llama, gpt2 or bert")
    head = "ForSequenceClassification" if spec.classes else "ForCausalLM"
    config |= {
        "architectures": [config["architectures"][0] + head],
        "tie_word_embeddings": spec.tied,
        "vocab_size": spec.vocabulary,
    }
    try:
        again = read(ConfigReader(config, where="config.json"))
    except RecipeError as error:
        raise ValueError(f"Hugging Face's {config['model_type']} has no such shape: {error}") from error
    unsaid = _OF_TASKS if spec.positions == "rope" else _OF_TASKS | {"rope_theta"}
    for name in (name for name in ModelSpec.__dataclass_fields__ if name not in unsaid):
        ours, theirs = getattr(spec, name), getattr(again, name)
        if ours != theirs:
            raise ValueError(f"Hugging Face's {config['model_type']} has {name}={theirs} here, not {ours}")
    return config
