"""The parts of the ``model`` section: dropout, scaled positions, constants, experts, latent attention, variants."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trainwright.spec.model import Activation, Norm, Pooling, Positions
from trainwright.spec.parts.experts import Balance
from trainwright.spec.parts.rotary import RopeKind
from trainwright.spec.sections.base import Section

NONE_AS_ZERO = ("score_cap", "logit_cap", "window_rope_theta")
"""Fields of ``ModelSpec`` that are None where a recipe writes 0."""


class DropoutSection(Section):
    """Rates of dropout in training, each element's own function of the seed, the step and its place."""

    residual: float = Field(0.0, ge=0, lt=1, description="of each sub-layer's output, before it is added")
    embedding: float = Field(0.0, ge=0, lt=1, description="of what enters the first block")
    attention: float = Field(0.0, ge=0, lt=1, description="of attention's weights, which then are made whole")
    depth: float = Field(
        0.0, ge=0, lt=1, description="of whole sub-layers of the last block; of earlier ones less (stochastic depth)"
    )


class RopeScalingSection(Section):
    """How rotary frequencies are scaled, so that a model sees more tokens than it was trained with."""

    kind: RopeKind = Field(description="linear, dynamic (NTK), yarn, llama3 or longrope")
    factor: float = Field(1.0, gt=0, description="by which frequencies are divided")
    original_tokens: int | None = Field(None, gt=0, description="context before it; for yarn, llama3 and longrope")
    fast_turns: float = Field(32.0, gt=0, description="turns in that context from which on a frequency is kept")
    slow_turns: float = Field(1.0, gt=0, description="turns in that context below which a frequency is divided")
    truncated: bool = Field(True, description="whether yarn's bounds are whole elements of a head")
    attention_factor: float = Field(1.0, gt=0, description="multiplies cosines and sines")
    short_factors: tuple[float, ...] = Field((), description="longrope's divisors up to the original context")
    long_factors: tuple[float, ...] = Field((), description="longrope's divisors beyond it")


class ScalesSection(Section):
    """Constants that multiply what flows between a network's parts."""

    embedding: float | None = Field(None, gt=0, description="of embeddings; default: the family's")
    residual: float | None = Field(None, gt=0, description="of a sub-layer's output; default: the family's")
    attention: float | None = Field(None, gt=0, description="of scores; default: the family's, else head_size^-0.5")
    logits_divisor: float | None = Field(None, gt=0, description="divides logits; default: the family's")
    alibi: float | None = Field(None, gt=0, description="of ALiBi's biases; default: the family's")


class ExpertsSection(Section):
    """A mixture of experts in place of the feed-forward, of a family that has it. How tokens choose is the family's."""

    count: int = Field(gt=0, description="routed experts of a layer")
    active: int = Field(gt=0, description="of them, those that each token passes")
    ffn_width: int = Field(gt=0, description="feed-forward size of one expert")
    shared_ffn_width: int = Field(0, ge=0, description="size of what every token passes beside them; 0: none")
    dense_layers: int = Field(0, ge=0, description="first layers, which keep one feed-forward of model.ffn_width")
    dense: tuple[int, ...] | None = Field(None, description="those layers, from 0, where they are not the first")
    normalised: bool | None = Field(
        None, description="whether the weights of a token's experts sum to one; default: the family's"
    )
    groups: int = Field(1, gt=0, description="groups of neighbouring experts")
    active_groups: int = Field(1, gt=0, description="of them, those that a token's experts may be in")
    scale: float | None = Field(None, gt=0, description="multiplies what routed experts return; default: the family's")
    balance: Balance | None = Field(
        None, description="what keeps their load even: a loss or a bias of each expert; default: the family's"
    )
    loss_weight: float | None = Field(
        None,
        ge=0,
        description="weight of each sequence's balance loss beside the task's; default: 0.001, by bias 0.0001",
    )
    z_weight: float = Field(0.0, ge=0, description="weight of the loss of large router logits; 0: none")
    bias_rate: float = Field(0.001, gt=0, description="what an update moves an expert's bias by (balance: bias)")


class ConvolutionsSection(Section):
    """Stages of residual blocks, of a family that has them. Each stage but the first halves the image."""

    depths: tuple[int, ...] = Field(min_length=1, description="residual blocks of each stage")
    widths: tuple[int, ...] = Field(min_length=1, description="channels of each stage")
    stem_width: int = Field(64, gt=0, description="channels of the first convolution")
    bottleneck: bool = Field(True, description="blocks of 1x1, 3x3, 1x1 with a quarter of the channels, or of two 3x3")
    stride_first: bool = Field(False, description="halve in a bottleneck's first 1x1, not in its 3x3")
    halves_first: bool = Field(False, description="halve the image in the first stage too")


class LatentSection(Section):
    """Keys and values from one narrow latent, of a family that has it (DeepSeek)."""

    query_rank: int | None = Field(None, gt=0, description="size of the queries' latent; default: none")
    kv_rank: int = Field(gt=0, description="size of the latent of keys and values")
    rope_size: int = Field(gt=0, description="elements of a head's key that positions turn, beside head_size others")
    value_size: int | None = Field(None, gt=0, description="elements of a head's value; default: head_size")


class VariantSection(Section):
    """Fields of the network that a configuration of a family may have otherwise; each defaults to the family's.

    Which of them a network computes its own check says (``refusals``): none is left out silently.
    """

    activation: Activation | None = Field(None, description="of the feed-forward")
    gated: bool | None = Field(None, description="feed-forward with a gate (SwiGLU and its like)")
    norm: Norm | None = Field(None, description="kind of the normalisation layers")
    norm_bias: bool | None = Field(None, description="bias of LayerNorm")
    norms_per_block: Literal[1, 2, 4] | None = Field(None, description="normalisation layers of a block: 1, 2 or 4")
    parallel_residual: bool | None = Field(None, description="attention and feed-forward side by side")
    positions: Positions | None = Field(None, description="how the network knows positions")
    rotary_share: float | None = Field(None, gt=0, le=1, description="share of a head that rotary positions turn")
    bias: bool | None = Field(None, description="biases of matrices")
    qkv_bias: bool | None = Field(None, description="biases of queries, keys and values; default: as bias")
    output_bias: bool | None = Field(None, description="bias of attention's output; default: as bias")
    pooling: Pooling | None = Field(None, description="classes of a document by its first token, or the mean of all")
    qk_norm: bool | None = Field(None, description="normalised queries and keys")
    window_layers: tuple[int, ...] | None = Field(None, description="layers, from 0, that have the window")
    window_rope_theta: float | None = Field(None, ge=0, description="their rotary base; 0: that of all")
    score_cap: float | None = Field(None, ge=0, description="soft bound of attention's scores; 0: none")
    logit_cap: float | None = Field(None, ge=0, description="soft bound of the logits; 0: none")

    def fields(self, *, layers: int) -> dict[str, Any]:
        """Returns the fields of ``ModelSpec`` that are given, for a network of so many layers."""
        given = {name: value or None if name in NONE_AS_ZERO else value for name, value in self if value is not None}
        if (some := given.get("window_layers")) and len(some) == layers and some == tuple(range(layers)):
            given["window_layers"] = None  # in all is what it is when nothing is said
        return given
