"""Every convolution of a ResNet: parameters, operations and activations derive from this table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trainwright.core.frozen import dataclass
from trainwright.spec.convnet import ConvNetSpec

STEM_KERNEL = 7


@dataclass(frozen=True, slots=True)
class Convolution:
    """``outputs`` x ``inputs`` channels, a square ``kernel``, a square result of ``size``; a batch norm behind it."""

    name: str
    outputs: int
    inputs: int
    kernel: int
    stride: int
    size: int
    layers: int = 1

    @property
    def parameters(self) -> int:
        """Returns the number of weights of all layers, with scale and shift of the batch norm (no bias of its own)."""
        return self.layers * self.outputs * (self.inputs * self.kernel**2 + 2)

    @property
    def forward_flops(self) -> int:
        """Returns the operations for one image, over all layers; a multiply-add is two."""
        return 2 * self.layers * self.size**2 * self.outputs * self.inputs * self.kernel**2


@lru_cache(maxsize=1024)
def convolutions(model: ConvNetSpec) -> tuple[Convolution, ...]:
    """Returns all convolutions, the stem first; equal blocks are listed once with their ``layers``."""
    return tuple(_convolutions(model))


def _convolutions(model: ConvNetSpec) -> Iterator[Convolution]:
    size = _halved(model.image_size)
    yield Convolution("stem", model.stem_width, model.channels, STEM_KERNEL, 2, size)
    size = _halved(size)  # the stem's pooling
    inputs = model.stem_width
    for stage, (depth, width) in enumerate(zip(model.depths, model.widths, strict=True)):
        stride = 2 if stage or model.halves_first else 1
        before, size = size, size if stride == 1 else _halved(size)
        if inputs != width or stride != 1:
            yield Convolution(f"stage{stage}.shortcut", width, inputs, 1, stride, size)
        yield from _block(model, f"stage{stage}.first", inputs, width, before=before, size=size, layers=1)
        if depth > 1:
            yield from _block(model, f"stage{stage}.rest", width, width, before=size, size=size, layers=depth - 1)
        inputs = width


def _block(
    model: ConvNetSpec, name: str, inputs: int, width: int, *, before: int, size: int, layers: int
) -> Iterator[Convolution]:
    """Yields the convolutions of a residual block whose input is ``before`` wide and high, its result ``size``."""
    inner = width // 4 if model.bottleneck else width
    first = size if model.stride_first or not model.bottleneck else before
    shapes = [(inner, inputs, 1, before, first), (inner, inner, 3, first, size), (width, inner, 1, size, size)]
    if not model.bottleneck:
        shapes = [(width, inputs, 3, before, size), (width, width, 3, size, size)]
    for number, (outputs, channels, kernel, entering, leaving) in enumerate(shapes):
        yield Convolution(
            f"{name}.{number}", outputs, channels, kernel, 1 if entering == leaving else 2, leaving, layers=layers
        )


def classifier_parameters(model: ConvNetSpec) -> int:
    """Returns the number of weights and biases of the last layer."""
    return model.classes * (model.widths[-1] + 1)


def classifier_flops(model: ConvNetSpec) -> int:
    """Returns the operations of the last layer for one image."""
    return 2 * model.classes * model.widths[-1]


def _halved(size: int) -> int:
    """Returns the result of a padded convolution or pooling with stride 2."""
    return -(-size // 2)


def parameter_counts(model: ConvNetSpec) -> tuple[tuple[str, int], ...]:
    """Returns the parameters of each component, as ``parameters.parameter_counts`` does of any network."""
    filters = sum(convolution.parameters for convolution in convolutions(model))
    return ("convolutions", filters), ("head", classifier_parameters(model))


def forward_flops(model: ConvNetSpec, *, images: int) -> tuple[int, int, int]:
    """Returns the operations of a forward pass: of the stem, of all other convolutions, and of the head."""
    stem, *rest = (images * convolution.forward_flops for convolution in convolutions(model))
    return stem, sum(rest), images * classifier_flops(model)
