"""Building blocks that compute in the dtype of their input, over parameters that stay fp32.

Mixed precision is explicit here: a weight is cast to the activations' dtype where it is used, so that the gradient
arrives in fp32 through the cast, and no autocast state changes what a line of code means.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``ffn``, ``heads``, ``kv_heads``, ``head`` (size of one head),
``stream`` (as ``batch``, with the tokens that the residual stream has here).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from trainwright.core.registry import load
from trainwright.spec.model import Activation, ModelSpec

MIXTURE = "trainwright.model.experts.mixture:Mixture"


class Linear(nn.Module):
    """``x @ weight.T + bias`` with ``weight`` of shape (out, in), as in PyTorch."""

    products: int = 1
    """Matrices that an input is multiplied by."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Project the last dim, in the dtype of ``x``."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (Zhang and Sennrich, 2019), statistics in fp32."""

    def __init__(self, width: int, *, epsilon: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon, self.offset = epsilon, offset

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise the last dim, and multiply it by the weight and its offset."""
        weight = self.weight.to(x.dtype)
        if self.offset:
            # Rounded before the sum too, as it arrives where it is gathered or kept in 16 bits.
            weight = (weight.to(torch.promote_types(x.dtype, torch.float32)) + self.offset).to(x.dtype)
        return F.rms_norm(x, self.weight.shape, weight, self.epsilon)


class LayerNorm(nn.Module):
    """Layer normalisation with weight and, but in MPT, bias (Ba et al., 2016)."""

    def __init__(self, width: int, *, epsilon: float, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise the last dim."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), bias, self.epsilon)


def make_norm(spec: ModelSpec, width: int | None = None) -> RMSNorm | LayerNorm:
    """Returns the normalisation layer that the spec names, of this ``width``; None: the stream's."""
    size = spec.width if width is None else width
    if spec.norm == "rmsnorm":
        return RMSNorm(size, epsilon=spec.norm_epsilon, offset=spec.norm_offset)
    return LayerNorm(size, epsilon=spec.norm_epsilon, bias=spec.norm_bias)


ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class GatedFeedForward(nn.Module):
    """A gated feed-forward (Shazeer, 2020): ``down(act(gate(x)) * up(x))``, with SiLU as the function SwiGLU."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[spec.activation]
        self.gate = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.up = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.down = Linear(spec.ffn_width, spec.width, bias=spec.bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*stream width"]:
        """Returns two projections, a gate, and a projection back."""
        return self.down(self.activate(self.gate(x)) * self.up(x))


class FeedForward(nn.Module):
    """``down(act(up(x)))``, as GPT-2 has it with the tanh form of GELU."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[spec.activation]
        self.up = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.down = Linear(spec.ffn_width, spec.width, bias=spec.bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*stream width"]:
        """Returns a projection, the function, and a projection back."""
        return self.down(self.activate(self.up(x)))


def make_feed_forward(spec: ModelSpec, layer: int) -> nn.Module:
    """Returns the feed-forward of a layer that the spec names."""
    if spec.mixes(layer):
        mixture: nn.Module = load(MIXTURE, kind="experts")(spec)
        return mixture
    return GatedFeedForward(spec) if spec.gated else FeedForward(spec)
