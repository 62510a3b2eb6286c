"""Matrices and parameters of a model, by component; equal to the real module's counts (tests hold them to that).

``matrices`` lists every matrix product once: parameters, operations, activations and adapters all derive from it.
Experts' matrices are listed once with ``copies``: a token passes ``rows`` of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from trainwright.core.frozen import dataclass
from trainwright.core.registry import load
from trainwright.planner.counts.pieces import padded_rows
from trainwright.spec.convnet import AnyModel, ConvNetSpec, counted, transformer
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.workload import OptimizerName, Workload

Part = Literal["stem", "attention", "feed_forward", "experts", "shared", "router", "further", "head"]
BLOCK_PARTS: tuple[Part, ...] = ("attention", "feed_forward", "experts", "shared", "router")
"""Parts that repeat with the layers."""
UP_FROM_LATENTS = ("query_up", "kv_up")  # make queries, keys and values of latent attention
CONVOLUTIONS = "trainwright.planner.counts.convolutions"
"""What counts convolutional networks: by name, because our trainer, which counts its own, has none."""
AVERAGE_BYTES = 4.0
"""Of one weight's average, whatever the dtype of the weight."""
MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0 + 4 / 256}
"""int8: one fp32 scale for 256 elements (Dettmers et al., 2022, arXiv 2110.02861)."""
MOMENTS_PER_PARAMETER: Mapping[OptimizerName, float] = {"adamw": 2.0, "sgd": 1.0, "plain-sgd": 0.0}
"""SGD has momentum, as ResNets are trained (He et al., 2015, section 3.4)."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight of ``outputs`` x ``inputs`` in each of ``layers`` layers, ``copies`` of it in each (experts).

    ``rows`` rows of the product for each token, over all copies together (top-k for experts, else 1), or for each
    sequence where ``per_sequence``. ``tied``: the weight is another's (the embedding) and counts no parameters.
    """

    name: str
    outputs: int
    inputs: int
    part: Part
    layers: int = 1
    rows: int = 1
    copies: int = 1
    bias: bool = False
    tied: bool = False
    per_sequence: bool = False

    @property
    def elements(self) -> int:
        """Returns the elements of one copy in one layer, without its bias."""
        return self.outputs * self.inputs

    @property
    def parameters(self) -> int:
        """Returns the number of weights and biases of all copies in all layers."""
        return self.layers * self.copies * (self.elements * (not self.tied) + self.outputs * self.bias)

    def total_rows(self, *, sequences: int, sequence_tokens: int) -> int:
        """Returns the rows that one layer multiplies in a batch, over all copies together."""
        return self.rows * sequences * (1 if self.per_sequence else sequence_tokens)


@lru_cache(maxsize=4096)
def matrices(model: ModelSpec) -> tuple[Matrix, ...]:
    """Returns every matrix of the model, in the order in which a token meets them."""
    return (*_stem(model), *_attention(model), *_feed_forward(model), *_heads(model))


def wide_matrices(model: ModelSpec, multiple: int) -> Iterator[Matrix]:
    """Yields every matrix as it enters products: the rows of the vocabulary are filled up to a multiple."""
    for matrix in matrices(model):
        padded = matrix.name == "vocabulary" and multiple > 1
        yield replace(matrix, outputs=padded_rows(matrix.outputs, multiple)) if padded else matrix


def _stem(model: ModelSpec) -> Iterator[Matrix]:
    """Yields vision's product, which makes one token of each patch of three colours."""
    if model.kind == "vision":
        patches = (model.image_size // model.patch_size) ** 2
        yield Matrix("patch", model.width, 3 * model.patch_size**2, "stem", rows=patches, bias=True, per_sequence=True)


def _attention(model: ModelSpec) -> Iterator[Matrix]:
    bias = model.qkv_biased
    if model.latent is None:
        keys = model.kv_heads * model.head_size
        for name, outputs in (("query", model.heads * model.head_size), ("key", keys), ("value", keys)):
            yield Matrix(name, outputs, model.width, "attention", layers=model.blocks, bias=bias)
    else:
        yield from _latent(model, model.latent, bias=bias)
    bias = model.output_biased
    yield Matrix("output", model.width, model.heads * model.value_size, "attention", layers=model.blocks, bias=bias)


def _latent(model: ModelSpec, latent: LatentAttention, *, bias: bool) -> Iterator[Matrix]:
    """Yields the matrices of DeepSeek-V2's attention: ``kv_down`` makes the rotated key too; narrow ones have bias."""
    queries = model.heads * model.score_size
    sizes = [("query", queries, model.width, False)]
    if latent.query_rank is not None:
        sizes = [("query_down", latent.query_rank, model.width, bias), ("query_up", queries, latent.query_rank, False)]
    sizes += [
        ("kv_down", latent.kv_rank + latent.rope_size, model.width, bias),
        ("kv_up", model.heads * (model.head_size + latent.value_size), latent.kv_rank, False),
    ]
    for name, outputs, inputs, biased in sizes:
        yield Matrix(name, outputs, inputs, "attention", layers=model.blocks, bias=biased)


def _feed_forward(model: ModelSpec) -> Iterator[Matrix]:
    dense = model.blocks - model.moe_layers
    if dense:
        yield from _network(model, model.ffn_width, part="feed_forward", layers=dense, bias=model.bias)
    experts = model.experts
    if experts is None:
        return
    yield Matrix("router", experts.count, model.width, "router", layers=model.moe_layers, bias=experts.router_bias)
    yield from _network(
        model, experts.ffn_width, part="experts", layers=model.moe_layers, bias=experts.bias, experts=experts
    )
    if experts.shared_ffn_width:
        yield from _network(model, experts.shared_ffn_width, part="shared", layers=model.moe_layers, bias=experts.bias)
    if experts.shared_gate:
        yield Matrix("shared_gate", 1, model.width, "shared", layers=model.moe_layers)


def _network(
    model: ModelSpec, inner: int, *, part: Part, layers: int, bias: bool, experts: Experts | None = None
) -> Iterator[Matrix]:
    rows, copies = (1, 1) if experts is None else (experts.active, experts.count)
    up = [("gate", inner, model.width), ("up", inner, model.width)] if model.gated else [("up", inner, model.width)]
    for name, outputs, inputs in (*up, ("down", model.width, inner)):
        yield Matrix(name, outputs, inputs, part, layers=layers, rows=rows, copies=copies, bias=bias)


def _heads(model: ModelSpec) -> Iterator[Matrix]:
    """Yields the language head (an encoder's has a square layer before it), pooler and classes.

    Every block that predicts a further token joins the token's embedding to what comes out of the block before, and
    passes the same head (DeepSeek-V3, arXiv 2412.19437, equations 21 to 23).
    """
    width = model.width
    if model.further_layers:
        yield Matrix("further", width, 2 * width, "further", layers=model.further_layers)
    if model.transforms:
        yield Matrix(
            "transform", width, width, "head", bias=model.bias, per_sequence=model.pooler and model.head_transform
        )
    if model.makes_logits:
        rows, bias = 1 + model.further_layers, model.head_bias
        yield Matrix("vocabulary", model.vocabulary, width, "head", rows=rows, bias=bias, tied=model.tied)
    if model.pooler and not model.head_transform:
        yield Matrix("pooler", width, width, "head", bias=True, per_sequence=True)
    if model.classes:
        # A decoder's classes read its last token and have no bias, as Hugging Face's have; those of tokens have one.
        decoder = model.kind == "decoder" and not model.token_classes
        whole = model.pooler or model.kind == "vision" or decoder
        yield Matrix("classes", model.classes, width, "head", bias=not decoder, per_sequence=whole)


@lru_cache(maxsize=4096)
def _counts(model: AnyModel) -> tuple[tuple[str, int], ...]:
    model = counted(model)
    if isinstance(model, ConvNetSpec):
        parts: tuple[tuple[str, int], ...] = load(f"{CONVOLUTIONS}:parameter_counts", kind="count")(model)
        return parts
    positions = model.context_tokens + model.extra_positions if model.positions == "learned" else 0
    tables = {
        "embedding": model.vocabulary * model.width if model.kind != "vision" else model.width,
        "positions": positions * model.width,
        "attention": model.blocks * model.heads * model.sinks,
        "feed_forward": 0,
        "norms": _norm_parameters(model),
        "head": 0,
    }
    if model.segments:
        tables["segments"] = model.segments * model.width
    for matrix in matrices(model):
        component = "embedding" if matrix.part == "stem" else matrix.part
        tables[component] = tables.get(component, 0) + matrix.parameters
    return tuple(tables.items())


def parameter_counts(model: AnyModel) -> dict[str, int]:
    """Returns the parameters of each component, over all layers.

    These are ``embedding``, ``positions``, ``attention``, ``feed_forward``, ``norms`` and ``head``; a tied head has
    none but its bias. Where the model has them also ``segments``, ``router``, ``experts``, ``shared`` and ``further``
    (projections of blocks that predict further tokens; the blocks count with the others). A ResNet: ``convolutions``
    (with their batch norms) and ``head``.
    """
    return dict(_counts(model))


def _norm_parameters(model: ModelSpec) -> int:
    scale = 2 if model.norm == "layernorm" and model.norm_bias else 1
    # What predicts a further token has a norm for each of its two inputs, and the last one for itself.
    further = (2 + model.final_norm) * model.further_layers
    inside = model.blocks * model.norms_per_block - (not model.first_norm)
    wide = inside + model.final_norm + model.embedding_norm + model.transforms + further
    narrow = 2 * model.head_size * model.qk_norm
    if model.latent is not None:
        narrow += model.latent.kv_rank + (model.latent.query_rank or 0)
    return scale * (wide * model.width + model.blocks * narrow)


def total_parameters(model: AnyModel) -> int:
    """Returns all parameters, a shared matrix counted once."""
    return sum(count for _, count in _counts(model))


def active_parameters(model: AnyModel) -> int:
    """Returns the parameters that one token passes: all but the experts that it is not routed to."""
    if model.experts is None:
        return total_parameters(model)
    experts = (matrix for matrix in matrices(transformer(model)) if matrix.part == "experts")
    return total_parameters(model) - sum(each.parameters // each.copies * (each.copies - each.rows) for each in experts)


def block_matrices(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Returns (outputs, inputs) of each matrix in one block, every expert's too: what Muon updates.

    Where the first layers are dense and the others are not, it is one of the others.
    """
    dense_too = model.moe_layers == 0
    return tuple(
        (matrix.outputs, matrix.inputs)
        for matrix in matrices(model)
        if matrix.part in BLOCK_PARTS and (dense_too or matrix.part != "feed_forward")
        for _ in range(matrix.copies)
    )


def block_matrix_parameters(model: ModelSpec) -> int:
    """Returns the parameters in the matrices of all blocks, without biases."""
    return sum(
        matrix.layers * matrix.copies * matrix.elements for matrix in matrices(model) if matrix.part in BLOCK_PARTS
    )


def moments_per_parameter(model: ModelSpec, workload: Workload) -> float:
    """Returns how many moments the optimizer keeps of each parameter.

    Muon keeps one of the blocks' matrices, and AdamW's of the rest; Adafactor a row and a column of each matrix.
    """
    if workload.optimizer == "adafactor":
        return factored_elements(model) / total_parameters(model)
    if workload.optimizer == "muon":
        return MOMENTS_PER_PARAMETER["adamw"] - block_matrix_parameters(model) / total_parameters(model)
    return MOMENTS_PER_PARAMETER[workload.optimizer]


def factored_elements(model: ModelSpec) -> int:
    """Returns the numbers that Adafactor keeps: rows and columns of each matrix or table, and all of what is neither.

    Shazeer and Stern, 2018, arXiv 1804.04235, algorithm 4; without its step count.
    """
    sizes = [(each.outputs, each.inputs, each.layers * each.copies) for each in matrices(model) if not each.tied]
    positions = model.context_tokens + model.extra_positions if model.positions == "learned" else 0
    sizes += [(rows, model.width, 1) for rows in (model.vocabulary, positions, model.segments) if rows]
    whole = total_parameters(model) - sum(rows * columns * count for rows, columns, count in sizes)
    return whole + sum((rows + columns) * count for rows, columns, count in sizes)
