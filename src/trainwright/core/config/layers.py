"""The layers below validation: files, environment variables, ``key=value`` overrides, and how they are put together."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trainwright.core.config.shape import Shape, members
from trainwright.core.config.text import read_json, read_yaml, scalar
from trainwright.core.config.tree import Layer, Node, ValueOrigin, dotted, said, shown
from trainwright.core.errors import RecipeError
from trainwright.core.paths import regular
from trainwright.core.spelling import did_you_mean
from trainwright.core.units import format_bytes

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_SUFFIXES = (".yaml", ".yml", ".json")
_PATCHES = ("environment", "override")
MAX_BYTES = 16 << 20
"""Largest recipe file; recipes have kilobytes."""


def read_file(path: Path, problems: list[RecipeError], *, preset: bool = False) -> Node | None:
    """Returns the tree of a YAML or ``.json`` file; None where a problem was added that leaves nothing to work with."""
    layer: Layer = "preset" if preset else "file"
    label = f"preset {path.stem}" if preset else str(path)

    def at(line: int, column: int) -> ValueOrigin:
        return ValueOrigin(layer=layer, where=f"{label}:{line + 1}:{column + 1}")

    try:
        text = _read_whole(path, label).decode("utf-8-sig")
        node = (read_json if path.suffix == ".json" else read_yaml)(text, at, problems)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n")
        seen = f"byte 0x{error.object[error.start]:02x}"
        problems.append(RecipeError("not UTF-8 text", where=f"{label}:{line + 1}", seen=seen, fix="save it as UTF-8"))
        return None
    except OSError as error:
        problems.append(_unreadable(path, label, error))
        return None
    except RecipeError as error:
        problems.append(error)
        return None
    if isinstance(node.content, dict):
        return node
    empty = node.content is None
    problems.append(
        RecipeError(
            "an empty file" if empty else "not a mapping",
            where=label if empty else node.origin,
            seen=None if empty else shown(node.plain()),
            expected="key: value lines",
        )
    )
    return None


def _read_whole(path: Path, label: str) -> bytes:
    """Returns the bytes of a regular file; anything else could have no end, and a file of gigabytes is no recipe.

    Raises:
        RecipeError: larger than ``MAX_BYTES``.
        OSError: it cannot be read, or is no regular file.
    """
    size_bytes = regular(path).stat().st_size
    if size_bytes > MAX_BYTES:
        seen, most = format_bytes(size_bytes), f"{format_bytes(MAX_BYTES)} at most"
        raise RecipeError("too large for a recipe", where=label, seen=seen, expected=most)
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES)


def _unreadable(path: Path, label: str, error: OSError) -> RecipeError:
    if isinstance(error, FileNotFoundError):
        there = sorted(other.name for other in path.parent.glob("[!.]*") if other.suffix in _SUFFIXES)
        near = did_you_mean(path.name, there)
        return RecipeError(
            "no such file", where=label, fix=near or (f"there is {', '.join(there[:6])}" if there else None)
        )
    if isinstance(error, IsADirectoryError):
        return RecipeError("a directory", where=label, expected="a .yaml or .json file")
    return RecipeError("cannot be read", where=label, seen=error.strerror or str(error))


def read_environment(
    environ: Mapping[str, str], *, prefix: str, ignore: Collection[str], problems: list[RecipeError]
) -> list[Node]:
    """Returns a tree for each variable ``<prefix>TRAIN__LR``: ``__`` goes one level down, letters become small."""
    patches = []
    names = (name for name in environ if name.startswith(prefix) and name not in ignore)
    for name in sorted(names, key=lambda name: (name.count("__"), len(name), name)):
        key = name.removeprefix(prefix).lower().replace("__", ".")
        origin = ValueOrigin(layer="environment", where=f"environment variable {name}")
        patches.append(_patch(key, environ[name], origin, problems))
    return [patch for patch in patches if patch is not None]


def read_overrides(overrides: Sequence[str], problems: list[RecipeError]) -> list[Node]:
    """Returns a tree for each ``key.key=value`` of a command line."""
    patches = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            problems.append(RecipeError("not an override", seen=repr(text), expected="key=value"))
            continue
        patches.append(_patch(key, value, ValueOrigin(layer="override", where=f"override {key}"), problems))
    return [patch for patch in patches if patch is not None]


def _patch(key: str, text: str, origin: ValueOrigin, problems: list[RecipeError]) -> Node | None:
    if not _KEY.fullmatch(key):
        problems.append(RecipeError("not a key", where=origin, seen=repr(key), expected="words with dots between them"))
        return None
    try:
        node = _value(text, origin)
    except RecipeError as error:
        problems.append(error)
        return None
    for part in reversed(key.split(".")):
        node = Node(content={part: node}, origin=origin)
    return node


def _value(text: str, origin: ValueOrigin) -> Node:
    """``[a, b]``, ``{a: 1}`` and quoted texts are YAML; all else is one scalar, whatever characters it has."""
    if text[:1] not in ("[", "{", '"', "'"):
        return Node(content=scalar(text.strip()), origin=origin)
    problems: list[RecipeError] = []
    node = read_yaml(text, lambda _line, _column: origin, problems)
    if problems:
        raise problems[0]
    return node


def merge(
    lower: Node | None, upper: Node, shape: Shape | None, problems: list[RecipeError], path: tuple[str, ...] = ()
) -> Node:
    """``upper`` laid over ``lower``.

    Mappings merge key by key; lists and scalars replace. Two refinements:

    * Where a section changes the name that decides its keys, those that only the former name has are dropped, and those
      that both have are kept. A key that neither has stays, so that it is reported.
    * An override or a variable may name a list's item by its index (``data.sources.0.path=x``); the index after the
      last one appends. Where no layer wrote the list, the default list is taken.
    """
    if not isinstance(upper.content, dict):
        return upper
    if _is_item_patch(upper) and shape is not None and shape.item(0) is not None:
        base = lower if lower is not None and isinstance(lower.content, list) else shape.default_node()
        return _patch_items(base, upper, shape, problems, path)
    if lower is not None and isinstance(lower.content, str) and shape is not None and shape.by_name is not None:
        lower = Node(content={shape.by_name.tag: lower}, origin=lower.origin)
    old = lower if lower is not None and isinstance(lower.content, dict) else None
    result = dict(old.content) if old is not None and isinstance(old.content, dict) else {}
    if old is not None and shape is not None and shape.by_name is not None and shape.by_name.tag in upper.content:
        former, latter = ({key for model in shape.sections(node) for key in members(model)} for node in (old, upper))
        result = {key: node for key, node in result.items() if key in latter or key not in former}
    merged = Node(content={**result, **upper.content}, origin=(old or upper).origin)
    for key, node in upper.content.items():
        result[key] = merge(result.get(key), node, shape.child(key, merged) if shape else None, problems, (*path, key))
    return Node(content=result, origin=merged.origin)


def _is_item_patch(node: Node) -> bool:
    return (
        isinstance(node.content, dict)
        and node.origin.layer in _PATCHES
        and bool(node.content)
        and all(key.isdecimal() for key in node.content)
    )


def _patch_items(
    base: Node | None, upper: Node, shape: Shape, problems: list[RecipeError], path: tuple[str, ...]
) -> Node:
    items = list(base.content) if base is not None and isinstance(base.content, list) else []
    assert isinstance(upper.content, dict)
    for key, node in upper.content.items():
        index = int(key)
        inside = (*path, key)
        if index > len(items):
            what = said(dotted(inside), "no such item", node.origin)
            expected = f"an index up to {len(items)}, which appends"
            problems.append(RecipeError(what, where=node.origin, seen=index, expected=expected))
            continue
        old = items[index] if index < len(items) else None
        items[index : index + 1] = [merge(old, node, shape.item(index), problems, inside)]
    return Node(content=items, origin=base.origin if base is not None else upper.origin)
