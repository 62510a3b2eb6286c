"""``ConvNetSpec``: the shape of a residual convolutional network (ResNet), enough to count its work. Any network."""

from __future__ import annotations

from typing import ClassVar

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.spec.model import ModelSpec, Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvNetSpec:
    """A ResNet (He et al., 2015): a 7x7 stem, then ``depths[i]`` residual blocks of ``widths[i]`` channels each.

    A bottleneck block is 1x1, 3x3, 1x1 with a quarter of its channels inside; a plain one is two 3x3. Every stage but
    the first halves the image, in the 3x3 convolution (ResNet v1.5) or, with ``stride_first``, in the 1x1 before it
    (the original).
    """

    unit: ClassVar[Unit] = "images"
    """What it is trained on, counted one by one."""
    sees_images: ClassVar[bool] = True
    """Whether its input is images."""
    batch_unit: ClassVar[Unit] = "images"
    """What people count a step's batch in."""
    batch_unit_tokens: ClassVar[int] = 1
    """See ``context_tokens``."""
    is_divisible: ClassVar[bool] = False
    """No layer is divided over ranks, so that data parallelism alone lays it out."""
    context_tokens: ClassVar[int] = 1
    """An image is a sequence of one token."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    family: str = "resnet"
    stem_width: int = 64
    bottleneck: bool = True
    stride_first: bool = False
    image_size: int = 224
    channels: int = 3
    classes: int = 1000

    @property
    def blocks(self) -> int:
        """Residual blocks of all stages."""
        return sum(self.depths)

    @property
    def experts(self) -> None:
        """None: no convolution is divided into experts."""

    def problems(self) -> tuple[str, ...]:
        """Returns every reason why no such network can be built; empty where there is none."""
        problems = [
            f"{name} must be at least 1, seen {getattr(self, name)}"
            for name in ("stem_width", "image_size", "channels", "classes")
            if getattr(self, name) < 1
        ]
        if not self.depths or len(self.depths) != len(self.widths):
            problems.append(f"depths ({self.depths}) and widths ({self.widths}) must name the same stages")
        if any(size < 1 for size in (*self.depths, *self.widths)):
            problems.append(f"depths and widths must be at least 1, seen {self.depths} and {self.widths}")
        if self.bottleneck and any(width % 4 for width in self.widths):
            problems.append(f"widths of bottleneck blocks must be multiples of 4, seen {self.widths}")
        return tuple(problems)


AnyModel = ModelSpec | ConvNetSpec


def transformer(model: AnyModel) -> ModelSpec:
    """Returns the network, where only a transformer will do; raises RecipeError of a convolutional one."""
    if isinstance(model, ConvNetSpec):
        raise RecipeError("this is for transformers, not for convolutional networks", seen=model.family)
    return model
