"""What a pydantic model expects at a key: sections, lists, mappings, sections by name."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from trainwright.core.config.by_name import ByName
from trainwright.core.config.tree import DEFAULT, Node, node_of
from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass

_LISTS = (list, tuple, set, frozenset, Sequence, AbstractSet)
_MAPPINGS = (dict, Mapping)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """An annotation without its wrappings.

    Attributes:
        options: the alternatives, None left out: one for a plain field, several for a union.
        nullable: null is allowed.
        field: the field that carries the annotation, where there is one.
        constraints: metadata of the annotation, such as ``annotated_types.Gt``.
    """

    options: tuple[Any, ...]
    nullable: bool = False
    field: FieldInfo | None = None
    constraints: tuple[Any, ...] = ()

    @property
    def by_name(self) -> ByName | None:
        """Returns what chooses the section by a name, where something does."""
        return next((item for item in self.constraints if isinstance(item, ByName)), None)

    def chosen(self, node: Node | None) -> type[BaseModel] | None:
        """Returns the section that the name in ``node`` stands for; None where nothing tells, or no import works."""
        if self.by_name is None or node is None:
            return None
        value = node.plain()
        try:
            return self.by_name.section(self.by_name.named(value) if isinstance(value, dict) else value)
        except RecipeError:
            return None

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """Returns the alternatives that are sections."""
        options = self.options if self.by_name is None else self.by_name.classes
        return tuple(option for option in options if isinstance(option, type) and issubclass(option, BaseModel))

    def sections(self, node: Node | None) -> tuple[type[BaseModel], ...]:
        """Returns the sections that ``node`` may be: one where its name tells which."""
        chosen = self.chosen(node)
        return (chosen,) if chosen is not None else self.models

    def item(self, index: int) -> Shape | None:
        """Returns what a list expects at ``index``; None where this is no list."""
        for option in self.options:
            if is_list(option):
                arguments = get_args(option)
                if get_origin(option) is tuple and arguments[-1:] != (...,):
                    return shape(arguments[index]) if index < len(arguments) else None
                return shape(arguments[0]) if arguments else shape(Any)
        return None

    def child(self, part: str | int, node: Node | None = None) -> Shape | None:
        """Returns what is expected under ``part`` of ``node``; None where nothing is."""
        if isinstance(part, int):
            return self.item(part)
        for model in self.sections(node):
            field = members(model).get(part)
            if field is not None:
                return of_field(field)
        for option in self.options:
            if (get_origin(option) or option) in _MAPPINGS:
                arguments = get_args(option)
                return shape(arguments[1]) if arguments else shape(Any)
        return None

    def default_node(self) -> Node | None:
        """Returns the field's default as a tree; None where it has none."""
        if self.field is None or self.field.is_required():
            return None
        value = self.field.get_default(call_default_factory=True, validated_data={})
        return None if value is PydanticUndefined else node_of(to_jsonable_python(value), DEFAULT)


def shape(annotation: Any, field: FieldInfo | None = None) -> Shape:
    """Returns the shape of a type annotation."""
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
        constraints += item.metadata if isinstance(item, FieldInfo) else [item]
    return Shape(
        options=tuple(_unwrap(option)[0] for option in options if option is not types.NoneType and option is not None),
        nullable=types.NoneType in options or None in options,
        field=field,
        constraints=tuple(constraints),
    )


def of_field(field: FieldInfo) -> Shape:
    """Returns the shape of a model's field."""
    return shape(field.annotation, field)


def of_model(model: type[BaseModel]) -> Shape:
    """Returns the shape of a whole document."""
    return Shape(options=(model,))


def members(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the keys of a section as a file writes them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def is_list(option: Any) -> bool:
    """Returns whether an alternative is written as a list."""
    return (get_origin(option) or option) in _LISTS


def walk(start: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """Yields every key below ``start`` in order, sections before their members; items of a list stand under ``0``."""
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
    """Returns the values of a ``Literal``; of anything else, none."""
    return get_args(option) if get_origin(option) is Literal else ()


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Returns the annotation without ``Annotated`` and type aliases, and the metadata found on the way."""
    metadata: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata += more
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            return annotation, metadata
