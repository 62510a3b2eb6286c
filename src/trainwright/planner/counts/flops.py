"""Floating-point operations of the matrix products, as ``torch.utils.flop_counter.FlopCounterMode`` counts them.

A multiply-add is two operations; only matrix products and convolutions count. Attention is counted *in full*: the half
above the causal diagonal is included, as in PaLM's definition of model FLOPs utilisation (Chowdhery et al., 2022,
appendix B), so that MFU can be compared with published numbers; ``hidden`` is the part that a kernel leaves out which
skips masked blocks.
The backward pass takes two products for each product of the forward pass, but one for the stem of a vision network:
pixels need no gradient. Recomputation is never counted as model FLOPs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.core.frozen import dataclass
from trainwright.core.registry import load
from trainwright.planner.counts.parameters import BLOCK_PARTS, CONVOLUTIONS, UP_FROM_LATENTS, matrices
from trainwright.spec.convnet import AnyModel, ConvNetSpec, counted

if TYPE_CHECKING:
    from trainwright.spec.run import RunSpec
    from trainwright.spec.workload import Recompute


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """Operations of one forward pass over ``sequences`` of ``sequence_tokens``, by component.

    ``linear`` is all matrices of the blocks (for each token, the experts that it is routed to), or all convolutions;
    ``head`` the output head, once for each token that is predicted, and what joins further ones to it;
    ``attention`` the two products of scores and values, in full. ``hidden`` is the part of ``attention`` that a causal
    mask and windows make void.
    """

    linear: int
    attention: int
    head: int
    stem: int = 0
    hidden: int = 0

    @property
    def forward(self) -> int:
        """Returns the operations of the forward pass, attention in full."""
        return self.stem + self.linear + self.attention + self.head

    @property
    def backward(self) -> int:
        """Returns those of the backward pass: gradients of both factors of each product, but of the stem's input."""
        return 2 * (self.linear + self.attention + self.head) + self.stem

    @property
    def training(self) -> int:
        """Returns the operations of forward and backward pass, attention in full."""
        return self.forward + self.backward


def count_flops(model: AnyModel, *, sequences: int, sequence_tokens: int) -> Flops:
    """Returns the operations of one forward pass; ``sequences`` of images is their number."""
    model = counted(model)
    if isinstance(model, ConvNetSpec):
        stem, linear, head = load(f"{CONVOLUTIONS}:forward_flops", kind="count")(model, images=sequences)
        return Flops(stem=stem, linear=linear, attention=0, head=head)
    tokens = tokens_of_a_sequence(model, sequence_tokens)
    sums = {"stem": 0, "linear": 0, "head": 0}
    for matrix in matrices(model):
        part = "linear" if matrix.part in BLOCK_PARTS else "stem" if matrix.part == "stem" else "head"
        rows = matrix.total_rows(sequences=sequences, sequence_tokens=tokens)
        sums[part] += 2 * rows * matrix.layers * matrix.elements
    pair = 2 * sequences * model.heads * (model.score_size + model.value_size)
    full, windowed = tokens**2, model.windowed_layers
    causal = model.kind == "decoder"
    seen = _visible_pairs(tokens, model.window_tokens, causal=causal)
    hidden = pair * (windowed * (2 * full - seen) + causal * (model.blocks - windowed) * full) // 2
    return Flops(**sums, attention=model.blocks * pair * full, hidden=hidden)


def tokens_of_a_sequence(model: AnyModel, sequence_tokens: int) -> int:
    """Returns the tokens of a sequence; those of an image are its model's, whatever is asked."""
    return model.context_tokens if model.sees_images else sequence_tokens


def _visible_pairs(tokens: int, window_tokens: int | None, *, causal: bool) -> int:
    """Returns twice the pairs that a window leaves; one of the whole sequence leaves all, a causal one half of them.

    A causal one leaves a triangle, then a band, and half of the diagonal; one both ways half of itself on each side.
    """
    window = tokens if window_tokens is None else min(window_tokens, tokens)
    if causal:
        return window * (2 * tokens - window)
    side = tokens - 1 if window_tokens is None else min(window_tokens // 2, tokens - 1)
    return 2 * (tokens * (2 * side + 1) - side * (side + 1))


def training_flops_per_token(model: AnyModel, *, sequence_tokens: int) -> float:
    """Returns the model FLOPs of one trained token, attention in full: the numerator of MFU."""
    tokens = tokens_of_a_sequence(model, sequence_tokens)
    return count_flops(model, sequences=1, sequence_tokens=tokens).training / tokens


def muon_flops(rows: int, columns: int) -> float:
    """Returns the operations of Muon's five iterations on one matrix: X X^T, its square, and the product with X."""
    small, large = min(rows, columns), max(rows, columns)
    return 5 * (4.0 * small**2 * large + 2.0 * small**3)


def utilisation(flops_per_s: float, peak_flops_per_s: float | None) -> float | None:
    """Returns the model FLOPs per second as a share of the device's dense peak (Chowdhery et al., 2022, appendix B).

    Returns:
        None where the peak is unknown, and where it is beaten: a rate that is beaten is no peak, and a share of it
        means nothing.
    """
    if not peak_flops_per_s or flops_per_s > peak_flops_per_s:
        return None
    return flops_per_s / peak_flops_per_s


def again_flops(run: RunSpec, recompute: Recompute, whole: Flops, *, compiled: bool) -> float:
    """Returns how many of a forward pass's operations recomputation repeats.

    Selective recomputation repeats attention where the software means that, or its scores are never kept; of other
    operations none counts as one but every second product of compiled code (torchtitan, arXiv 2410.06511, section
    2.1.3).
    """
    if recompute == "full":
        return float(whole.linear + whole.attention)
    remade = _remade_flops(run) if "latents" in run.stack.memory.remade else 0.0
    if recompute == "none":
        return remade
    if run.stack.selective == "attention":
        return remade + whole.attention
    halves = compiled and run.stack.memory.kernels != "own"
    return remade + (whole.linear / 2 if halves else 0.0) + (0.0 if run.workload.fused_attention else whole.attention)


def _remade_flops(run: RunSpec) -> float:
    """Returns the operations of a sequence's queries, keys and values, made from latents."""
    made = (each for each in matrices(run.transformer) if each.name in UP_FROM_LATENTS)
    return sum(2.0 * run.workload.sequence_tokens * each.layers * each.elements for each in made)
