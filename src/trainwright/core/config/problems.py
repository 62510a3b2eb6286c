"""pydantic's findings as lines a user can act on: place, key, value seen, value expected, did you mean."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from trainwright.core.config.explain import names_with, number_text, type_text
from trainwright.core.config.shape import Shape, members, shape, walk
from trainwright.core.config.tree import LAYERS, Node, Path, ValueOrigin, dotted, said, shown
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import did_you_mean

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "bytes": "a text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "mapping": "a mapping",
    "dataclass": "a mapping",
    "model_attributes": "a mapping",
    "path": "a path",
    "date": "a date",
    "datetime": "a date and time",
}
_RANGES = {
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "string_pattern_mismatch": "a text like {pattern}",
}
_WORD = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z0-9_]+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    """One entry of a ValidationError, its location found in the tree.

    ``union`` is the path of the untagged union that the entry is an alternative of.
    """

    entry: dict[str, Any]
    path: Path
    node: Node | None
    parent: Node
    shape: Shape | None
    parent_shape: Shape | None
    union: Path | None

    @property
    def origin(self) -> ValueOrigin:
        return (self.node or self.parent).origin

    @property
    def kind(self) -> str:
        return str(self.entry["type"])

    @property
    def context(self) -> dict[str, Any]:
        return dict(self.entry.get("ctx", {}))


def translate(error: ValidationError, root: Node, model: Shape) -> list[RecipeError]:
    """Returns one RecipeError for each thing that is wrong, in the order pydantic found them."""
    entries = [dict(entry) for entry in error.errors(include_url=False)]
    findings = [finding for finding in (_locate(entry, root, model) for entry in entries) if not _echoes(finding)]
    deepest: dict[Path, int] = {}
    for finding in findings:
        if finding.union is not None:
            deepest[finding.union] = max(deepest.get(finding.union, 0), len(finding.path))
    groups: dict[Path, list[_Finding]] = {}
    for finding in findings:
        if finding.union is None or len(finding.path) == deepest[finding.union]:
            groups.setdefault(finding.path, []).append(finding)
    return [problem for group in groups.values() for problem in _problems(group, root, model)]


def _echoes(finding: _Finding) -> bool:
    """Returns whether an entry repeats another: a tuple's bad items are not counted, which makes it too short."""
    items = finding.node.content if finding.node is not None else None
    return finding.kind == "too_short" and isinstance(items, list) and len(items) >= finding.context["min_length"]


def _locate(entry: dict[str, Any], root: Node, model: Shape) -> _Finding:
    """Follow pydantic's location, which also holds the names of unions' alternatives, through the tree."""
    path: Path = ()
    node: Node | None = root
    parent, here, above, union = root, model, None, None
    parts = list(entry["loc"])
    at: Shape | None = here
    while parts:
        if at is not None and len(at.options) > 1:
            union = path
            at = _alternative(at, str(parts.pop(0)))
            continue
        part = parts.pop(0)
        if part == "[key]":
            break
        parent, above = node or parent, at
        path = (*path, part)
        at = at.child(part, node) if at is not None else None
        node = node.child(part) if node is not None else None
    return _Finding(entry=entry, path=path, node=node, parent=parent, shape=at, parent_shape=above, union=union)


def _alternative(union: Shape, tag: str) -> Shape | None:
    """Returns the member of a union that pydantic calls ``tag``; one with a validator is ``function-after[.., X]``."""
    for option in union.options:
        name = getattr(option, "__name__", "")
        if tag in (name, str(option)) or tag.startswith(f"{name}[") or tag.endswith(f" {name}]"):
            return shape(option)
    return None


def _problems(group: list[_Finding], root: Node, model: Shape) -> list[RecipeError]:
    first = group[0]
    # Of a union's alternatives a validator refuses the one that the value has the form of.
    refused = next((each for each in group if each.kind in ("value_error", "assertion_error")), None)
    if refused is not None:
        return _from_validator(refused, root)
    if first.kind == "extra_forbidden":
        return [_unknown_key(first, model)]
    key = dotted(first.path) or "the recipe"
    if first.kind == "missing":
        wanted = type_text(first.shape) if first.shape else None
        doc = first.shape.field.description if first.shape and first.shape.field else None
        what = said(key, "missing", first.parent.origin)
        return [RecipeError(what, where=first.parent.origin, expected=f"{wanted}: {doc}" if doc else wanted)]
    expected = " or ".join(dict.fromkeys(_expected(finding) for finding in group))
    if first.union is None and first.shape is not None and first.shape.nullable:
        expected += " or null"
    value = first.node.content if first.node is not None else first.entry.get("input")
    if first.kind in ("literal_error", "enum") and len(group) == 1:
        return [_not_one_of(key, first, value, first.context["expected"])]
    what = "out of range" if first.kind in _RANGES else "wrong value"
    seen = first.node.plain() if first.node is not None else value
    return [RecipeError(said(key, what, first.origin), where=first.origin, seen=shown(seen), expected=expected)]


def _expected(finding: _Finding) -> str:
    context = finding.context
    if finding.kind in _RANGES:
        return _RANGES[finding.kind].format(**{name: number_text(value) for name, value in context.items()})
    if finding.kind in ("literal_error", "enum"):
        return str(context["expected"])
    stem = finding.kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if stem in _TYPES:
        return _TYPES[stem]
    message = str(finding.entry["msg"]).removeprefix("Input should be ")
    return message[:1].lower() + message[1:]


def _not_one_of(key: str, finding: _Finding, value: Any, expected: str) -> RecipeError:
    known = re.findall(r"'([^']*)'", expected)
    return RecipeError(
        said(key, "unknown value", finding.origin),
        where=finding.origin,
        seen=shown(value),
        expected=expected if " or " in expected or len(known) < 2 else f"one of {expected}",
        fix=did_you_mean(str(value), known),
    )


def _unknown_key(finding: _Finding, model: Shape) -> RecipeError:
    key = str(finding.path[-1])
    section = dotted(finding.path[:-1])
    known: list[str] = []
    for candidate in finding.parent_shape.sections(finding.parent) if finding.parent_shape else ():
        known += [name for name in members(candidate) if name not in known]
    fix = did_you_mean(key, known)
    if finding.parent_shape and finding.parent_shape.by_name and (names := names_with(key, finding.parent_shape)):
        fix = f"it goes with {finding.parent_shape.by_name.tag}: {' or '.join(names)}"
    elif fix is None:
        paths = [path for path, _ in walk(model) if path[-1] == key]
        # A key of a list's entry is meant where no other has the name.
        plain = [path for path in paths if not any(str(part).isdigit() for part in path)]
        elsewhere = [dotted(path) for path in plain or paths]
        near = [other for other in elsewhere if other.startswith(f"{section}.")] or elsewhere
        near = [name for name in known if name.startswith(f"{key}_")] or near
        fix = f"did you mean {' or '.join(repr(other) for other in near[:3])}?" if near else None
    return RecipeError(
        said(dotted(finding.path), "unknown key", finding.origin),
        where=finding.origin,
        expected=f"one of {', '.join(known)}" if known and (fix is None or len(known) <= 6) else None,
        fix=fix,
    )


def _from_validator(finding: _Finding, root: Node) -> list[RecipeError]:
    """Returns a validator's own words; where they name keys, the place is the one of the key that was written last."""
    error = finding.context.get("error")
    message = str(finding.entry["msg"]).split(", ", 1)[-1]
    causes = error.problems if isinstance(error, RecipeErrors) else (error,)
    problems = []
    for cause in causes:
        key = dotted(finding.path)
        if isinstance(cause, RecipeError):
            origin = _blamed(f"{cause.where} {cause.what}", finding.node or finding.parent, root)
            key = ".".join(part for part in (key, cause.where) if part)
            problems.append(cause.at(origin, what=said(key, cause.what, origin)))
            continue
        origin = _blamed(message, finding.node or finding.parent, root)
        plain = finding.node is not None and not isinstance(finding.node.content, (dict, list))
        seen = shown(finding.node.content) if plain and finding.node and "seen " not in message else None
        problems.append(RecipeError(said(key, message, origin), where=origin, seen=seen))
    return problems


def _blamed(text: str, section: Node, root: Node) -> ValueOrigin:
    """Returns the place of a key that ``text`` names, else of something in the section."""
    origins = []
    for word in _WORD.findall(text):
        for start in (section, root):
            node: Node | None = start
            for part in word.split("."):
                node = node.child(int(part) if part.isdecimal() else part) if node is not None else None
            if node is not None and (start is section or "." in word):
                origins.append(node.origin)
                break
    # Who wrote a section over a base is to blame for what does not fit it.
    written = [origin for origin in origins if origin.layer != "base"]
    return _strongest(written or _origins(section))


def _origins(node: Node) -> list[ValueOrigin]:
    inside: list[Node] = []
    if isinstance(node.content, dict):
        inside = list(node.content.values())
    elif isinstance(node.content, list):
        inside = node.content
    return [node.origin, *(origin for item in inside for origin in _origins(item))]


def _strongest(origins: list[ValueOrigin]) -> ValueOrigin:
    """Returns the first of those that the last layer wrote: what was valid before it came is not to blame."""
    return max(origins, key=lambda origin: LAYERS.index(origin.layer))
