"""The residual network (He et al., 2015, arXiv 1512.03385), built from a ``ModelSpec`` with ``convolutions``.

A 7x7 stem and a pooling quarter the image; then come stages of residual blocks; the mean over all places is the one
hidden state of an image. Behind every convolution stands a batch norm (Ioffe and Szegedy, 2015, arXiv 1502.03167): in
training it normalises by the mean and the variance of the whole pass, and its running statistics move once an update,
after the optimizer, so that an update that is left out leaves them as they were.

Shape legend: ``batch`` (images), ``channels``, ``side`` (pixels), ``seq`` (one), ``width``, ``classes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.layers import Linear
from trainwright.model.network import Network, unbuilt
from trainwright.model.parts.initial import normal
from trainwright.model.parts.plain import OF_IMAGES
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import NO_DROPOUT
from trainwright.spec.workload import KernelChoice, Recompute

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache

CHANNELS = 3
"""Red, green and blue."""
MOMENTUM = 0.1
"""Share of a batch's statistics in the running ones after it."""
REDUCTION = 4
"""Channels of a bottleneck block for one inside it."""

_BUILT: Mapping[str, tuple[object, ...]] = {
    **OF_IMAGES,
    "heads": (1,),
    "kv_heads": (1,),
    "head_size": (1,),
    "ffn_width": (1,),
    "context_tokens": (1,),
    "positions": ("none",),
    "bias": (False,),
    "qkv_bias": (None,),
    "output_bias": (None,),
    "activation": ("relu",),
    "dropout": (NO_DROPOUT,),
    "patch_size": (0,),
}
"""Fields of ``ModelSpec`` with the values that this network computes, whatever the other fields are."""


def refusals(spec: ModelSpec) -> tuple[str, ...]:
    """Returns why this is not the network that the spec describes, a line for each field; empty where it is."""
    missing = () if spec.convolutions else ("ResNet needs convolutions: the depths and widths of its stages",)
    return missing + unbuilt("ResNet", spec, _BUILT)


class BatchNorm(nn.Module):
    """Batch normalisation of each channel, in training by this pass, in evaluation by the running statistics."""

    running_mean: Tensor
    running_var: Tensor
    batch_mean: Tensor
    batch_var: Tensor

    def __init__(self, width: int, *, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))
        for name in ("mean", "var"):
            self.register_buffer(f"running_{name}", torch.full((width,), float(name == "var")))
            self.register_buffer(f"batch_{name}", torch.zeros(width), persistent=False)

    def forward(self, x: Float[Tensor, "batch width side side"]) -> Float[Tensor, "batch width side side"]:
        """Normalise; in training the statistics of the pass wait for ``move``."""
        if not self.training:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.epsilon)
        # With a momentum of one they become those of this pass alone, the variance unbiased.
        mean, var = self.batch_mean, self.batch_var
        return F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=1.0, eps=self.epsilon)

    @torch.no_grad()
    def move(self) -> None:
        """Move the running statistics towards those of the last pass."""
        for running, seen in ((self.running_mean, self.batch_mean), (self.running_var, self.batch_var)):
            running.mul_(1 - MOMENTUM).add_(seen, alpha=MOMENTUM)


class Convolution(nn.Module):
    """A convolution without bias, padded to keep the image's size but for its stride, and a batch norm behind it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.norm = BatchNorm(outputs, epsilon=epsilon)
        self.stride, self.padding = stride, kernel // 2

    def forward(self, x: Float[Tensor, "batch inputs side side"]) -> Float[Tensor, "batch outputs less less"]:
        """Convolve in the dtype of ``x``, and normalise."""
        made = F.conv2d(x, self.weight.to(x.dtype), stride=self.stride, padding=self.padding)
        normed: Tensor = self.norm(made)
        return normed


class Residual(nn.Module):
    """A residual block: convolutions with ReLU between them, added to the input or, where sizes differ, to a shortcut.

    Args:
        inputs: channels that come in.
        width: channels that go out.
        stride: 2 halves the image.
        stages: of the network, which say what a block is made of.
        epsilon: of the batch norms.
    """

    def __init__(self, inputs: int, width: int, *, stride: int, stages: Convolutions, epsilon: float) -> None:
        super().__init__()
        sizes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        if stages.bottleneck:
            inner = width // REDUCTION
            first, second = (stride, 1) if stages.stride_first else (1, stride)
            sizes = [(inputs, inner, 1, first), (inner, inner, 3, second), (inner, width, 1, 1)]
        self.convolutions = nn.ModuleList(Convolution(*size, stride=by, epsilon=epsilon) for *size, by in sizes)
        changes = inputs != width or stride != 1
        self.shortcut = Convolution(inputs, width, 1, stride=stride, epsilon=epsilon) if changes else None

    def forward(self, x: Float[Tensor, "batch inputs side side"]) -> Float[Tensor, "batch width less less"]:
        """Return the activated sum."""
        inside = x
        for number, convolution in enumerate(self.convolutions):
            inside = convolution(F.relu(inside) if number else inside)
        return F.relu(inside + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(Network):
    """The residual network; its head gives logits over ``spec.classes``.

    Args:
        spec: the shape.
        dtype: of activations and products; parameters, and the statistics of batch norms, stay fp32.
        recompute: ``none``: a second pass through batch norms would count twice.

    Raises:
        ValueError: the spec describes no network (its ``problems``), or one that is not built here (``refusals``).
    """

    def __init__(self, spec: ModelSpec, *, dtype: torch.dtype = torch.float32, recompute: Recompute = "none") -> None:
        super().__init__()
        problems = spec.problems() or refusals(spec)
        if problems:
            raise ValueError("; ".join(problems))
        if recompute != "none":
            raise ValueError(f"ResNet keeps all of its blocks' results: recompute=none, not recompute={recompute}")
        self.spec, self.compute_dtype = spec, dtype
        self.passes = 0
        stages, epsilon = spec.convolutions, spec.norm_epsilon
        assert stages is not None
        self.stem = Convolution(CHANNELS, stages.stem_width, 7, stride=2, epsilon=epsilon)
        self.blocks = nn.ModuleList()
        inputs = stages.stem_width
        for stage, (depth, width) in enumerate(zip(stages.depths, stages.widths, strict=True)):
            for place in range(depth):
                stride = 2 if place == 0 and (stage or stages.halves_first) else 1
                self.blocks.append(Residual(inputs, width, stride=stride, stages=stages, epsilon=epsilon))
                inputs = width
        self.head = Linear(spec.width, spec.classes, bias=True)

    @property
    def head_weight(self) -> Float[Tensor, "classes width"]:
        """Returns the head's matrix."""
        return self.head.weight

    @property
    def logit_bias(self) -> Float[Tensor, " classes"] | None:
        """Returns the head's bias."""
        return self.head.bias

    def matrices(self) -> dict[str, nn.Parameter]:
        """Returns none: filters have four dims."""
        return {}

    def tables(self) -> dict[str, nn.Parameter]:
        """Returns none: every filter has a gradient in every step."""
        return {}

    def use(self, kernels: KernelChoice) -> None:
        """Take over the kernel of the loss; a ValueError says that there is no attention to choose."""
        if kernels.attention != "auto":
            raise ValueError(f"ResNet has no attention: leave attention={kernels.attention} out")
        self.kernels = kernels

    def forward(
        self,
        tokens: Float[Tensor, "batch channels side side"],
        *,
        positions: Int[Tensor, "#batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: KVCache | None = None,
        samples: Int[Tensor, " batch"] | None = None,
        places: Int[Tensor, " seq"] | None = None,
        part: range | None = None,
    ) -> Float[Tensor, "batch 1 width"]:
        """Returns the mean over the places of the last block's result, as the one hidden state of each image.

        Args:
            tokens: images, normalised, of three channels.
            positions: none; as ``documents``, ``cache``, ``places`` and ``part``, which are for sequences of tokens.
            documents: none.
            cache: none.
            samples: what would decide what training drops; nothing is dropped.
            places: none.
            part: none.

        Raises:
            ValueError: something else than images and ``samples`` was given.
        """
        if any(given is not None for given in (positions, documents, cache, places, part)):
            raise ValueError("ResNet takes whole images: no positions, documents, cache, places or part")
        self.passes += self.training
        x = F.relu(self.stem(tokens.to(self.compute_dtype)))
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return x.mean(dim=(2, 3)).unsqueeze(1)

    def before_update(self, of_sequence: Tensor) -> None:
        """Counts the passes of an update from here on; earlier ones tried the network out."""
        self.passes = 0

    def after_update(self, add_up: Callable[[Tensor], Tensor], *, made: bool) -> Mapping[str, Tensor]:
        """Moves the running statistics of batch norms towards those of the update's pass, where it was made.

        Raises:
            ValueError: the update had several passes, so that no statistics are those of its batch.
        """
        if made and self.passes != 1:
            raise ValueError(f"a batch norm sees a batch in one pass, seen {self.passes} passes of one update")
        for module in self.modules():
            if made and isinstance(module, BatchNorm):
                module.move()
        return {}

    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields first values, from a generator that the seed keys.

        Filters are normal with sqrt(2 / (outputs * kernel^2)) (He et al., 2015, arXiv 1502.01852, section 2.2), the
        head with sqrt(1 / (3 width)), the deviation of torch's own; norms are one, biases zero.
        """
        shapes = self.shapes

        def deviation(name: str) -> float:
            shape = shapes[name]
            return math.sqrt(2 / (shape[0] * shape[2] ** 2) if len(shape) == 4 else 1 / (3 * self.spec.width))

        return normal(shapes, seed, deviation)
