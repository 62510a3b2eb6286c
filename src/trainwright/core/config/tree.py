"""Configuration before validation: plain values, each with the place it was written at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from trainwright.core.frozen import dataclass

Scalar = str | int | float | bool | None
Layer = Literal["default", "base", "preset", "file", "environment", "override"]
Path = tuple[str | int, ...]

LAYERS: tuple[Layer, ...] = ("default", "base", "preset", "file", "environment", "override")
"""Weakest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueOrigin:
    """Where a value comes from; ``where`` is what a user reads: ``a.yaml:3:5``, ``override train.lr``, ``default``."""

    layer: Layer
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT = ValueOrigin(layer="default", where="default")


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A scalar, mapping or list. The origin of a mapping's member is the place of its key."""

    content: Scalar | dict[str, Node] | list[Node]
    origin: ValueOrigin

    def child(self, part: str | int) -> Node | None:
        """Returns the member ``part``, or None where there is none."""
        if isinstance(self.content, dict):
            return self.content.get(str(part))
        if isinstance(self.content, list) and isinstance(part, int) and part < len(self.content):
            return self.content[part]
        return None

    def plain(self) -> Any:
        """Returns the bare value, as JSON would have it."""
        if isinstance(self.content, dict):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content


def node_of(value: Any, origin: ValueOrigin) -> Node:
    """Returns a tree of a JSON-like value, all of one origin."""
    if isinstance(value, dict):
        return Node(content={str(key): node_of(item, origin) for key, item in value.items()}, origin=origin)
    if isinstance(value, list):
        return Node(content=[node_of(item, origin) for item in value], origin=origin)
    return Node(content=value, origin=origin)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields the scalars and empty containers of a JSON-like value, in order, with their paths."""
    if not value or not isinstance(value, (dict, list)):
        yield path, value
        return
    for part, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, part))


def dotted(path: Path) -> str:
    """``data.sources.0.kind``."""
    return ".".join(str(part) for part in path)


def said(key: str, what: str, origin: ValueOrigin) -> str:
    """``key: what``, the key left out where the origin names it already."""
    return what if origin.where == f"override {key}" or not key else f"{key}: {what}"


def shown(value: Any, *, limit: int = 60) -> str:
    """Returns a value on one short line."""
    if isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(shown(item) for item in value) + "]"
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
