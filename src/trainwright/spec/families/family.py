"""``Family``: what networks of one kind have in common, and the names of the code that computes and converts them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, ClassVar

from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension
from trainwright.core.frozen import dataclass
from trainwright.core.plug_in import InstanceOf
from trainwright.core.spelling import unknown
from trainwright.spec.model import FAMILIES, Activation, ModelKind, ModelSpec, Norm, Positions

ENCODER = "trainwright.model.encoder.network:Encoder"
DECODER = "trainwright.model.decoder:Decoder"
"""The network whose parameters, operations and memory plans count."""


QKV = (("query", "key", "value"),)
"""What ``joined`` is where a form has one matrix for attention's three."""


def as_it_is(spec: ModelSpec) -> ModelSpec:
    """Returns the shape of a family that has no more to say of it."""
    return spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What a recipe's sizes are completed with; no torch here, so that plans need none.

    Attributes:
        gated: the feed-forward has three matrices.
        norm, positions, bias, activation, tied: as in ``ModelSpec``; a recipe may tie otherwise.
        ffn_width: the feed-forward's default size for a width.
        kind: what it reads and how, as in ``ModelSpec``.
        complete: takes the shape that follows from all that, and returns the family's: with its norms, windows, scales.
        experts: what its experts have in common, fields of ``Experts``; None: it has no experts.
        convolutional: its networks are of ``Convolutions``, not of attention.
        latent: the same of ``LatentAttention``; None: it has ordinary attention.
        fields: further fields of ``ModelSpec`` that all of its networks have.
        joined: names of matrices that are one in ``huggingface``'s form, a tuple for each; empty where none are.
        network: ``package.module:class`` of the ``Network`` that computes it.
        huggingface: the module with ``from_config``, ``to_config``, ``from_hf`` and ``to_hf``; None: it has no such
            form.
    """

    gated: bool
    norm: Norm
    positions: Positions
    bias: bool
    activation: Activation
    tied: bool
    ffn_width: Callable[[int], int]
    kind: ModelKind = "decoder"
    complete: Callable[[ModelSpec], ModelSpec] = as_it_is
    experts: Mapping[str, Any] | None = None
    latent: Mapping[str, Any] | None = None
    convolutional: bool = False
    fields: Mapping[str, Any] | None = None
    joined: tuple[tuple[str, ...], ...] = ()
    network: str = DECODER
    huggingface: str | None = None
    CODE: ClassVar[tuple[str, ...]] = ("network", "huggingface")

    @property
    def sees_images(self) -> bool:
        """Returns whether its input is images."""
        return self.kind == "vision"

    def shape(self, name: str, **sizes: Any) -> ModelSpec:
        """Returns the shape of this family that has these fields of ``ModelSpec``; ``name`` is what recipes call it."""
        spec = ModelSpec(
            family=name,
            gated=self.gated,
            norm=self.norm,
            positions=self.positions,
            bias=self.bias,
            activation=self.activation,
            kind=self.kind,
            **sizes,
        )
        return self.complete(spec)


FAMILY = Extension("family", FAMILIES, InstanceOf(Family))


def huggingface_form(family: str, *, where: str) -> ModuleType:
    """Returns the module of a family's Hugging Face form: ``from_config``, ``to_config``, ``from_hf``, ``to_hf``.

    Args:
        family: a ``model_type``, or ``package.module:name`` of a plug-in.
        where: what names it, for the error line.

    Raises:
        RecipeError: there is no such family, or it has no form in Hugging Face's libraries.
    """
    if FAMILY.knows(family):
        module = FAMILY.load(family).huggingface
        if module is None:
            raise RecipeError("this family has no Hugging Face form", where=where, seen=repr(family))
        return importlib.import_module(module)
    raise RecipeError("unknown model_type", where=where, **unknown(family, FAMILIES))


def huggingface_config(spec: ModelSpec, *, where: str) -> dict[str, Any]:
    """Returns the ``config.json`` of a shape; for our own families no torch is loaded.

    Raises:
        RecipeError: the family, or the shape, has no form in Hugging Face's libraries.
    """
    form = huggingface_form(spec.family, where=where)
    try:
        config: dict[str, Any] = form.to_config(spec)
    except ValueError as error:
        raise RecipeError("this shape cannot be exported", where="model", seen=str(error)) from error
    said: ModelSpec = form.from_config(config, where=where)
    if lost := list(_unsaid(spec, said)):
        seen = f"Hugging Face's {config['model_type']} has no form for {', '.join(lost)}"
        raise RecipeError("this shape cannot be exported", where="model", seen=seen)
    return config


def _unsaid(spec: ModelSpec, said: ModelSpec) -> Iterator[str]:
    """Yields what of a shape another one does not have: each field with its value, of a group its own fields alone."""
    harmless = ("family",) if spec.positions == "rope" else ("family", "rope_theta")
    for name in spec.body_differences(said):
        ours, theirs = spec.body_part(name), said.body_part(name)
        if name in harmless:
            continue
        if not is_dataclass(ours) or type(ours) is not type(theirs):
            yield f"{name}={ours}"
            continue
        for part in fields(ours):
            if getattr(ours, part.name) != getattr(theirs, part.name):
                yield f"{name}.{part.name}={getattr(ours, part.name)}"
