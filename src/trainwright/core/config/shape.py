"""What a pydantic model expects at a key: sections, lists, mappings, tagged unions."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from trainwright.core.config.plug_in import PlugInSection
from trainwright.core.config.tree import DEFAULT, Node, node_of
from trainwright.core.errors import RecipeError

_LISTS = (list, tuple, set, frozenset, Sequence, AbstractSet)
_MAPPINGS = (dict, Mapping)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """An annotation without its wrappings.

    Attributes:
        options: the alternatives, None left out: one for a plain field, several for a union.
        nullable: null is allowed.
        discriminator: the key whose value names the alternative, in a tagged union.
        field: the field that carries the annotation, where there is one.
        constraints: metadata of the annotation, such as ``annotated_types.Gt``.
    """

    options: tuple[Any, ...]
    nullable: bool = False
    discriminator: str | None = None
    field: FieldInfo | None = None
    constraints: tuple[Any, ...] = ()

    @property
    def plug_ins(self) -> PlugInSection | None:
        """What opens a tagged union to sections from outside the project, where something does."""
        return next((item for item in self.constraints if isinstance(item, PlugInSection)), None)

    def plugged_in(self, node: Node | None) -> type[BaseModel] | None:
        """The section of the plug-in that ``node`` names by its tag; None where it names none that can be imported."""
        tag = node.child(self.plug_ins.tag) if node is not None and self.plug_ins is not None else None
        if tag is None or self.plug_ins is None or not self.plug_ins.reference({self.plug_ins.tag: tag.content}):
            return None
        try:
            return self.plug_ins.section(str(tag.content))
        except RecipeError:
            return None

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """The alternatives that are sections."""
        return tuple(option for option in self.options if isinstance(option, type) and issubclass(option, BaseModel))

    def tagged(self, tag: object) -> type[BaseModel] | None:
        """The section of a tagged union that ``tag`` names."""
        if self.discriminator is None:
            return None
        return next((model for model in self.models if tag in tags(model, self.discriminator)), None)

    def sections(self, node: Node | None) -> tuple[type[BaseModel], ...]:
        """The sections that ``node`` may be: one where its tag says so."""
        tag = node.child(self.discriminator) if node is not None and self.discriminator is not None else None
        chosen = self.tagged(tag.content) if tag is not None and not isinstance(tag.content, (dict, list)) else None
        chosen = chosen or self.plugged_in(node)
        return (chosen,) if chosen is not None else self.models

    def item(self, index: int) -> Shape | None:
        """What a list expects at ``index``; None where this is no list."""
        for option in self.options:
            if is_list(option):
                arguments = get_args(option)
                if get_origin(option) is tuple and arguments[-1:] != (...,):
                    return shape(arguments[index]) if index < len(arguments) else None
                return shape(arguments[0]) if arguments else shape(Any)
        return None

    def child(self, part: str | int, node: Node | None = None) -> Shape | None:
        """What is expected under ``part`` of ``node``; None where nothing is."""
        if isinstance(part, int):
            return self.item(part)
        sections = self.sections(node)
        if len(sections) > 1 and part == self.discriminator:
            kinds: Any = Literal[tuple(tag for model in sections for tag in tags(model, part))]
            return shape(
                kinds, FieldInfo(annotation=kinds, description="which kind this is; it decides the other keys")
            )
        for model in sections:
            field = members(model).get(part)
            if field is not None:
                return of_field(field)
        for option in self.options:
            if (get_origin(option) or option) in _MAPPINGS:
                arguments = get_args(option)
                return shape(arguments[1]) if arguments else shape(Any)
        return None

    def default_node(self) -> Node | None:
        """The field's default as a tree; None where it has none."""
        if self.field is None or self.field.is_required():
            return None
        value = self.field.get_default(call_default_factory=True, validated_data={})
        return None if value is PydanticUndefined else node_of(to_jsonable_python(value), DEFAULT)


def shape(annotation: Any, field: FieldInfo | None = None) -> Shape:
    """The shape of a type annotation."""
    discriminator = field.discriminator if field is not None else None
    constraints = list(field.metadata) if field is not None else []
    annotation, inner = _unwrap(annotation)
    options: list[Any] = []
    is_union = get_origin(annotation) in (Union, types.UnionType)
    for option in get_args(annotation) if is_union else (annotation,):
        bare, metadata = _unwrap(option)
        nested = get_origin(bare) in (Union, types.UnionType)
        options += get_args(bare) if nested else [bare]
        inner += metadata
    for item in inner:
        discriminator = discriminator or getattr(item, "discriminator", None)
        constraints += item.metadata if isinstance(item, FieldInfo) else [item]
    return Shape(
        options=tuple(_unwrap(option)[0] for option in options if option is not types.NoneType and option is not None),
        nullable=types.NoneType in options or None in options,
        discriminator=discriminator if isinstance(discriminator, str) else None,
        field=field,
        constraints=tuple(constraints),
    )


def of_field(field: FieldInfo) -> Shape:
    """The shape of a model's field."""
    return shape(field.annotation, field)


def of_model(model: type[BaseModel]) -> Shape:
    """The shape of a whole document."""
    return Shape(options=(model,))


def members(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section as a file writes them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def tags(model: type[BaseModel], discriminator: str) -> tuple[Any, ...]:
    """The values of ``discriminator`` that name ``model`` in a tagged union."""
    return get_args(members(model)[discriminator].annotation)


def is_list(option: Any) -> bool:
    """Whether an alternative is written as a list."""
    return (get_origin(option) or option) in _LISTS


def walk(start: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """Every key below ``start`` in order, sections before their members; the items of a list stand under ``0``."""
    seen: set[str] = set()
    for model in start.models:
        for name in members(model):
            below = start.child(name)
            if name not in seen and below is not None:
                seen.add(name)
                yield (*path, name), below
                yield from walk(below, (*path, name))
    if not start.models and (item := start.item(0)) is not None and item.models:
        yield from walk(item, (*path, "0"))


def literals(option: Any) -> tuple[Any, ...]:
    """The values of a ``Literal``; of anything else, none."""
    return get_args(option) if get_origin(option) is Literal else ()


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """The annotation without ``Annotated`` and type aliases, and the metadata found on the way."""
    metadata: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata += more
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            return annotation, metadata
