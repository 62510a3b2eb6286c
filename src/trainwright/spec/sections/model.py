"""The ``model`` section of a recipe: family and sizes of the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import blaming
from trainwright.spec.families.family import FAMILY, Family
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.sections.base import Count, Section
from trainwright.spec.sections.model_parts import (
    NONE_AS_ZERO,
    ConvolutionsSection,
    DropoutSection,
    ExpertsSection,
    LatentSection,
    RopeScalingSection,
    ScalesSection,
    VariantSection,
)
from trainwright.spec.sections.weights.width import FAMILIES, MupSection


def _nearest_divisor(width: int, heads: int) -> int:
    """Returns the divisor of ``width`` nearest to ``heads``, the smaller of two."""
    start = min(heads, width)
    near = (number for distance in range(start) for number in (start - distance, start + distance))
    return next(number for number in near if width % number == 0)


_SECTIONS: dict[str, type[Section]] = {
    "rope_scaling": RopeScalingSection,
    "scales": ScalesSection,
    "experts": ExpertsSection,
    "latent": LatentSection,
    "convolutions": ConvolutionsSection,
}
_KEYS = (
    *("family", "layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "tied", "rope_theta", "norm_epsilon"),
    *_SECTIONS,
    "window_tokens",
)
"""Keys that a shape's fields of the same name are written as."""
_TRAINING_ALONE = ("loss_weight", "z_weight", "bias_rate")
"""Keys of experts that any base goes with."""


class ModelSection(Section):
    """The network. Sizes that are left out follow from the family."""

    family: Annotated[str, FAMILY] = Field("llama", description="model family: a file under model/families")
    layers: int = Field(gt=0, description="transformer blocks")
    width: int = Field(gt=0, description="hidden size")
    heads: int = Field(gt=0, description="query heads")
    kv_heads: int | None = Field(None, gt=0, description="key/value heads; default: heads (no grouping)")
    head_size: int | None = Field(None, gt=0, description="size of one head; default: width / heads")
    ffn_width: int | None = Field(
        None, gt=0, description="feed-forward size; default: 8/3 width to a multiple of 64 (llama), 4 width (gpt2)"
    )
    context_tokens: Count = Field(1024, description="longest sequence the model can see")
    image_size: int | None = Field(None, gt=0, description="pixels of an image, wide and high, for a network of images")
    patch_size: int | None = Field(None, gt=0, description="pixels of a patch, wide and high; each becomes a token")
    tied: bool | None = Field(None, description="share the embedding with the output head; default: the family's")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    rope_scaling: RopeScalingSection | None = Field(None, description="scaled rotary positions; default: none")
    window_tokens: int | None = Field(
        None, gt=0, description="sliding window of attention, in the layers where the family has one, else in all"
    )
    scales: ScalesSection = Field(default_factory=ScalesSection, description="constants that multiply streams")
    norm_epsilon: float = Field(1e-5, gt=0, description="epsilon of the normalisation layers")
    experts: ExpertsSection | None = Field(None, description="a mixture of experts, of a family that has it")
    latent: LatentSection | None = Field(None, description="latent attention, of a family that has it")
    convolutions: ConvolutionsSection | None = Field(
        None, description="stages of a convolutional family, from which layers, width and heads follow"
    )
    variant: VariantSection = Field(
        default_factory=VariantSection, description="what this network has otherwise than its family"
    )
    dropout: DropoutSection = Field(default_factory=DropoutSection, description="dropout in training")
    mup: MupSection | None = Field(
        None, description="rates and first weights that were found at another width and follow it; null: as written"
    )
    init_from: str | None = Field(
        None,
        description="start from the weights of this checkpoint, trained model, Hugging Face directory, or hf://OWNER/NAME",
    )

    @model_validator(mode="before")
    @classmethod
    def _follows_from_stages(cls, data: Any) -> Any:
        """Gives the sizes that follow from the stages of a convolutional network, where they are left out."""
        given = data.get("convolutions") if isinstance(data, dict) else None
        if not isinstance(given, dict | ConvolutionsSection):
            return data
        try:
            stages = ConvolutionsSection.model_validate(given)
        except ValidationError:  # told by the field's own validation, at its place
            return data
        return {"layers": sum(stages.depths), "width": stages.widths[-1], "heads": 1} | data

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.head_size is None and self.width % self.heads:
            near = _nearest_divisor(self.width, self.heads)
            what = f"width ({self.width}) is not divisible by heads ({self.heads})"
            raise ValueError(f"{what}; nearest that does: heads={near}, or set head_size")
        if problem := self._image_problem() or self._mup_problem():
            raise ValueError(problem)
        # How many classes there are the task says.
        if problems := replace(spec := self.spec(vocabulary=1), classes=int(spec.sees_images)).problems():
            raise ValueError("; ".join(problems))
        if self.variant.norm_bias is not None and spec.norm != "layernorm":
            raise ValueError(f"variant.norm_bias is for norm: layernorm, and this network's is {spec.norm}: drop it")
        # An image has as many tokens as it has, whatever text could have.
        object.__setattr__(self, "context_tokens", spec.context_tokens)
        return self

    def _image_problem(self) -> str | None:
        """Returns what is wrong with the sizes of images, or None."""
        sizes = {"image_size": self.image_size, "patch_size": self.patch_size}
        if self.loaded.convolutional and sizes.pop("patch_size") is not None:
            return f"patch_size is for a network of patches, which {self.family} is not"
        if not self.loaded.sees_images:
            given = [name for name, size in sizes.items() if size is not None]
            return f"{given[0]} is for a network of images, which {self.family} is not" if given else None
        missing = [name for name, size in sizes.items() if size is None]
        if missing:
            return f"{self.family} needs {' and '.join(missing)}"
        tokens = self.spec(vocabulary=0).context_tokens
        if "context_tokens" in self.model_fields_set and self.context_tokens != tokens:
            return f"context_tokens ({self.context_tokens}) is not the {tokens} tokens of an image: leave it out"
        return None

    def _mup_problem(self) -> str | None:
        """Returns why rates of another width do not hold for this network, or None."""
        if self.mup is None:
            return None
        if self.family not in FAMILIES:
            return f"mup is for {', '.join(FAMILIES)}, not {self.family}: leave it out and find rates at this width"
        if self.init_from is not None:
            return "mup is for weights that begin at random, and init_from has begun them: leave one of them out"
        return None

    @property
    def width_ratio(self) -> float:
        """Returns how many times as wide it is as the network that its rates are of."""
        return 1.0 if self.mup is None else self.mup.ratio(self.width)

    @property
    def loaded(self) -> Family:
        """Returns the family.

        Raises:
            RecipeError: it is a plug-in that cannot be imported, or no ``Family``.
        """
        try:
            family: Family = FAMILY.load(self.family)
        except RecipeError as error:
            raise error.at("family") from error
        return family

    def spec(self, *, vocabulary: int) -> ModelSpec:
        """Returns the shape, for a tokenizer of ``vocabulary`` entries."""
        family = self.loaded
        image, patch = self.image_size or 0, self.patch_size or 0
        tokens = self.context_tokens
        if family.sees_images:
            tokens = 1 if family.convolutional else (image // max(patch, 1)) ** 2 + 1
        parts, ffn_width = self._parts(family), None
        if self.experts is not None and not self.experts.dense_layers:
            ffn_width = self.experts.ffn_width  # no layer has another
        with blaming(self.family, where="family"):
            spec = family.shape(
                self.family,
                layers=self.layers,
                width=self.width,
                heads=self.heads,
                kv_heads=self.kv_heads or self.heads,
                head_size=self._head_size,
                ffn_width=self.ffn_width or ffn_width or family.ffn_width(self.width),
                vocabulary=0 if family.sees_images else vocabulary,
                context_tokens=tokens,
                tied=family.tied if self.tied is None else self.tied,
                norm_epsilon=self.norm_epsilon,
                rope_theta=self.rope_theta,
                dropout=Dropout(**self.dropout.model_dump()),
                image_size=image,
                patch_size=patch,
                rope_scaling=None if self.rope_scaling is None else RopeScaling(**self.rope_scaling.model_dump()),
                **parts,
            )
        scales = {name: scale for name, scale in self.scales.model_dump().items() if scale is not None}
        window = spec.window_tokens if self.window_tokens is None else self.window_tokens
        varied = self.variant.fields(layers=spec.blocks)
        shape = replace(spec, scales=replace(spec.scales, **scales), window_tokens=window, **varied)
        return shape if self.mup is None else self.mup.widened(shape)

    def _parts(self, family: Family) -> dict[str, Any]:
        """Returns the family's own fields, and experts and latent attention, which it has or has not.

        Raises:
            RecipeError: they are asked for and it has none, or the other way round.
        """
        for key, has, asked in (
            ("experts", family.experts is not None, self.experts),
            ("latent", family.latent is not None, self.latent),
            ("convolutions", family.convolutional, self.convolutions),
        ):
            if has and asked is None:
                raise RecipeError(
                    "this family needs {key}", where=key, seen=self.family, fix=f"write model.{key}", key=key
                )
            if asked is not None and not has:
                fix = f"leave model.{key} out, or choose another model.family"
                raise RecipeError("this family has no {key}", where=key, seen=self.family, fix=fix, key=key)
        parts = dict(family.fields or {})
        if self.experts is not None:
            written = {name: value for name, value in self.experts.model_dump().items() if value is not None}
            parts["experts"] = Experts(**{**(family.experts or {}), **written})
        if self.convolutions is not None:
            parts["convolutions"] = Convolutions(**self.convolutions.model_dump())
        if self.latent is not None:
            sizes = self.latent.model_dump() | {"value_size": self.latent.value_size or self._head_size}
            parts["latent"] = LatentAttention(**{**(family.latent or {}), **sizes})
        return parts

    @property
    def _head_size(self) -> int:
        return self.head_size or self.width // self.heads

    def differences(self, asked: ModelSpec, base: ModelSpec) -> Iterator[RecipeError]:
        """Yields each difference that keeps this section's network from beginning with the weights of a base.

        A size that follows from another one is left out where it agrees once that one does.

        Args:
            asked: the shape of this section, with the head of its task.
            base: the shape of the base.
        """
        written = [name for name in asked.body_differences(base) if getattr(self, name, None) is not None]
        if "family" in written:
            yield self._difference("family", asked, base)
            return
        agreeing = self.model_copy(update={name: _as_section(name, getattr(base, name)) for name in written})
        mended, then = agreeing.spec(vocabulary=asked.vocabulary), " then" if written else ""
        yield from (self._difference(name, asked, base) for name in written)
        yield from (self._difference(name, mended, base, then) for name in mended.body_differences(base))

    def _difference(self, name: str, asked: ModelSpec, base: ModelSpec, then: str = "") -> RecipeError:
        value, varies = _written(getattr(base, name)), name in VariantSection.model_fields
        key = f"model.variant.{name}" if varies else f"model.{name}" if name in type(self).model_fields else None
        return RecipeError(
            "the base has {name} {value}, this {whole} asks for {other}",
            where=f"model.{name}" if self.init_from is None else "model.init_from",
            fix=None if key is None else f"write {key}={value}",
            name=name,
            value=value,
            whole=("step" if self.init_from is None else "recipe") + then,
            other=_written(getattr(asked, name)),
        )


def keys_of(shape: ModelSpec) -> dict[str, Any]:
    """Returns the keys of a ``model`` section that ask for this shape, as JSON has them, without those that are None.

    What is about training alone (dropout, weights of balance losses) is not among them, nor what follows from others:
    an image's tokens from its size.
    """
    section = {name: _as_section(name, getattr(shape, name)) for name in _KEYS}
    if shape.sees_images:
        section |= {"image_size": shape.image_size, "patch_size": shape.patch_size or None}
    else:
        section["context_tokens"] = shape.context_tokens
    keys = {name: _as_json(value) for name, value in section.items() if value is not None}
    plain = ModelSection.model_construct(**section).spec(vocabulary=shape.vocabulary)
    varied = [name for name in VariantSection.model_fields if getattr(plain, name) != getattr(shape, name)]
    return keys | ({"variant": {name: _varied(name, shape) for name in varied}} if varied else {})


def _varied(name: str, shape: ModelSpec) -> Any:
    """Returns a field of a shape as ``model.variant`` has it, which has no word for none."""
    value = getattr(shape, name)
    if value is not None:
        return list(value) if isinstance(value, tuple) else value
    if name == "window_layers":
        return list(range(shape.blocks))
    return 0 if name in NONE_AS_ZERO else shape.bias


def _as_json(value: Any) -> Any:
    """Returns a key's value; of a section the keys that have one, what is about training alone left out."""
    if not isinstance(value, Section):
        return value
    written = value.model_dump(mode="json", exclude_none=True)
    return {name: part for name, part in written.items() if name not in _TRAINING_ALONE}


def _as_section(name: str, value: Any) -> Any:
    """Returns a field of a shape as its section has it."""
    if name not in _SECTIONS or value is None:
        return value
    section = _SECTIONS[name]
    return section(**{key: getattr(value, key) for key in section.model_fields})


def _written(value: Any) -> Any:
    """Returns a field of a shape as a recipe has it: of a record what differs from its defaults."""
    if not is_dataclass(value):
        return value
    known = ((field, getattr(value, field.name)) for field in fields(value))
    parts = [(field.name, part) for field, part in known if part != field.default]
    return f"{{{', '.join(f'{name}: {part}' for name, part in parts)}}}"
