"""``ConvNetSpec``: the shape of a residual convolutional network (ResNet), enough to count its work. Any network."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.spec.model import ModelSpec, Unit
from trainwright.spec.parts.convolutions import Convolutions


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvNetSpec(Convolutions):
    """A ResNet (He et al., 2015): its stages, for images of ``image_size`` pixels, wide and high, in ``classes``."""

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

    family: str = "resnet"
    image_size: int = 224
    channels: int = 3
    classes: int = 1000

    @property
    def experts(self) -> None:
        """None: no convolution is divided into experts."""

    def problems(self) -> tuple[str, ...]:
        """Returns every reason why no such network can be built; empty where there is none."""
        sizes = {"image_size": self.image_size, "channels": self.channels, "classes": self.classes}
        small = (f"{name} must be at least 1, seen {size}" for name, size in sizes.items() if size < 1)
        return (*small, *Convolutions.problems(self))


AnyModel = ModelSpec | ConvNetSpec


def counted(model: AnyModel) -> AnyModel:
    """Returns what the planner counts of a shape that is trained: of a convolutional one that network itself."""
    if isinstance(model, ConvNetSpec) or model.convolutions is None:
        return model
    stages: dict[str, Any] = {each.name: getattr(model.convolutions, each.name) for each in fields(Convolutions)}
    return ConvNetSpec(**stages, family=model.family, image_size=model.image_size, classes=model.classes)


def transformer(model: AnyModel) -> ModelSpec:
    """Returns the network, where only a transformer will do; raises RecipeError of a convolutional one."""
    if isinstance(model, ConvNetSpec):
        raise RecipeError("this is for transformers, not for convolutional networks", seen=model.family)
    return model
