"""YAML and JSON text to a tree with line and column, and the problems of the text.

YAML is read with the scalars of YAML 1.2's core schema: ``3e-4`` is a number, ``no`` is a string, ``0o17`` is fifteen.
Left out on purpose: anchors and aliases (a recipe has no inheritance, and ten nested ones are a gigabyte), merge keys,
tags other than ``!!str``, several documents, keys that are not scalars. A key written twice is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import yaml

from trainwright.core.config.tree import Node, Scalar, ValueOrigin
from trainwright.core.errors import RecipeError

MAX_DEPTH = 64
"""Deepest nesting; recipes have about six levels, attacks have thousands."""

At = Callable[[int, int], ValueOrigin]
"""Origin of a value at a zero-based line and column."""

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_INT = re.compile(r"[-+]?[0-9]{1,4000}")
_OCTAL = re.compile(r"0o[0-7]{1,1000}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,1000}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DOTTED_WORD = re.compile(r"\.([A-Za-z])")
_JSON = json.JSONDecoder()
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_JSON_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")


def scalar(text: str) -> Scalar:
    """Returns a plain (unquoted) scalar by YAML 1.2's core schema, section 10.3.2."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, base=8)
    if _HEX.fullmatch(text):
        return int(text, base=16)
    if _FLOAT.fullmatch(text):
        return float(_DOTTED_WORD.sub(r"\1", text))
    return text


def read_yaml(text: str, at: At, problems: list[RecipeError]) -> Node:
    """Returns the tree of a YAML text; keys written twice are added to ``problems``.

    Raises:
        RecipeError: the text is not YAML, or uses what is left out here.
    """
    try:
        return _Yaml(text, at, problems).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        raise _syntax_error(f"YAML: {_yaml_reason(error)}", text, line, column, at) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n"), error.position - before.rfind("\n") - 1
        raise RecipeError(
            "a character that YAML does not allow", where=at(line, column), seen=f"U+{ord(text[error.position]):04X}"
        ) from error


def read_json(text: str, at: At, problems: list[RecipeError]) -> Node:
    """Returns the tree of a JSON text; keys written twice are added to ``problems``.

    Raises:
        RecipeError: the text is not JSON, or says NaN or infinity.
    """

    def refuse(constant: str) -> NoReturn:
        raise RecipeError("not a JSON number", where=at(0, 0), seen=constant, expected="a finite number")

    try:
        json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise _syntax_error(f"JSON: {error.msg}", text, error.lineno - 1, error.colno - 1, at) from error
    except RecursionError as error:
        raise _too_deep(at(0, 0)) from error
    return _Json(text, at, problems).value((), 0)[0]


class _Yaml:
    """Builds the tree from PyYAML's parser events, which carry positions and resolve nothing."""

    def __init__(self, text: str, at: At, problems: list[RecipeError]) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._at = at
        self._problems = problems

    def document(self) -> Node:
        next(self._events)  # stream start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return Node(content=None, origin=self._at(0, 0))
        node = self._node(next(self._events), (), None)
        next(self._events)  # document end
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise RecipeError("a second document", where=self._origin(following), expected="one document per file")
        return node

    def _origin(self, event: Any) -> ValueOrigin:
        return self._at(event.start_mark.line, event.start_mark.column)

    def _node(self, event: Any, path: tuple[str, ...], key_origin: ValueOrigin | None) -> Node:
        here = self._origin(event)
        if len(path) > MAX_DEPTH:
            raise _too_deep(here)
        if event.anchor is not None:
            raise RecipeError(
                "anchors and aliases are not part of a recipe",
                where=here,
                seen=repr(event.anchor),
                expected="the value itself, or quotes around a text that starts with * or &",
            )
        origin = key_origin or here
        if isinstance(event, yaml.ScalarEvent):
            return Node(content=self._scalar(event, here), origin=origin)
        if event.tag is not None:
            raise _tag_error(event.tag, here)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event, (*path, str(len(items))), None))
            return Node(content=items, origin=origin)
        return Node(content=self._members(path), origin=origin)

    def _members(self, path: tuple[str, ...]) -> dict[str, Node]:
        members: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            origin = self._origin(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise RecipeError("a key that is not a word", where=origin, expected="key: value")
            inner = (*path, event.value)
            node = self._node(next(self._events), inner, origin)
            if node.content is None and event.style is None and re.fullmatch(r"[^:\s]+:[^:\s]+", event.value):
                raise _no_space(event.value, origin)
            if event.value in members:
                self._problems.append(_twice(inner, origin, members[event.value].origin))
            members.setdefault(event.value, node)
        return members

    def _scalar(self, event: yaml.ScalarEvent, here: ValueOrigin) -> Scalar:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise _tag_error(event.tag, here)
        text: str = event.value
        return scalar(text) if event.tag is None and event.style is None else text


class _Json:
    """Builds the tree from a text that is known to be JSON; exists because ``json`` does not tell positions."""

    def __init__(self, text: str, at: At, problems: list[RecipeError]) -> None:
        self._text = text
        self._at = at
        self._problems = problems
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._line = 0

    def value(self, path: tuple[str, ...], index: int, key_origin: ValueOrigin | None = None) -> tuple[Node, int]:
        """Returns the value that begins at or after ``index``, and the index behind it."""
        index = self._skip(index)
        origin = key_origin or self._origin(index)
        if len(path) > MAX_DEPTH:
            raise _too_deep(origin)
        opening = self._text[index]
        if opening == '"':
            text, index = _JSON.raw_decode(self._text, index)
            return Node(content=text, origin=origin), index
        if opening == "{":
            return self._members(path, index, origin)
        if opening == "[":
            return self._items(path, index, origin)
        match = _JSON_SCALAR.match(self._text, index)
        assert match is not None
        return Node(content=scalar(match[0]), origin=origin), match.end()

    def _members(self, path: tuple[str, ...], index: int, origin: ValueOrigin) -> tuple[Node, int]:
        members: dict[str, Node] = {}
        while self._text[index := self._skip(index + 1)] != "}":
            key_origin = self._origin(index)
            key, index = _JSON.raw_decode(self._text, index)
            node, index = self.value((*path, key), self._skip(index) + 1, key_origin)
            if key in members:
                self._problems.append(_twice((*path, key), key_origin, members[key].origin))
            members.setdefault(key, node)
            index = self._skip(index)
            if self._text[index] == "}":
                break
        return Node(content=members, origin=origin), index + 1

    def _items(self, path: tuple[str, ...], index: int, origin: ValueOrigin) -> tuple[Node, int]:
        items: list[Node] = []
        while self._text[self._skip(index + 1)] != "]":
            node, index = self.value((*path, str(len(items))), index + 1)
            items.append(node)
            index = self._skip(index)
            if self._text[index] == "]":
                return Node(content=items, origin=origin), index + 1
        return Node(content=items, origin=origin), self._skip(index + 1) + 1

    def _skip(self, index: int) -> int:
        match = _JSON_SPACE.match(self._text, index)
        assert match is not None
        return match.end()

    def _origin(self, index: int) -> ValueOrigin:
        while self._line + 1 < len(self._line_starts) and self._line_starts[self._line + 1] <= index:
            self._line += 1
        return self._at(self._line, index - self._line_starts[self._line])


def _twice(path: tuple[str, ...], origin: ValueOrigin, first: ValueOrigin) -> RecipeError:
    return RecipeError(
        "{path}: written twice", where=origin, expected=f"one value; the first is at {first}", path=".".join(path)
    )


def _no_space(written: str, origin: ValueOrigin) -> RecipeError:
    """Returns the error of ``{tp:3}``, which is a key of that name without a value."""
    key, _, value = written.partition(":")
    what = "a key without a value"
    return RecipeError(
        what, where=origin, seen=repr(written), fix=f"YAML wants a space behind the colon: {key}: {value}"
    )


def _too_deep(origin: ValueOrigin) -> RecipeError:
    return RecipeError("nested too deep", where=origin, expected=f"at most {MAX_DEPTH} levels")


def _tag_error(tag: str, origin: ValueOrigin) -> RecipeError:
    short = tag.replace("tag:yaml.org,2002:", "!!")
    return RecipeError("tags are not part of a recipe", where=origin, seen=short, fix=f"remove {short}")


def _yaml_reason(error: yaml.MarkedYAMLError) -> str:
    reason = ": ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in reason:
        return "a tab; indent with spaces, not tabs"
    if "alias" in reason or "anchor" in reason:
        return f"{reason}; put quotes around a text that starts with * or &"
    return reason


def _syntax_error(reason: str, text: str, line: int, column: int, at: At) -> RecipeError:
    """Returns the place, the reason, and the line itself with a caret under the character."""
    lines = text.splitlines() or [""]
    written = lines[min(line, len(lines) - 1)] if line < len(lines) else ""
    start = max(0, column - 70)
    snippet = written[start : start + 100].replace("\t", " ")
    what = f"not valid {reason}"
    # A tab cannot be seen: the line would not help.
    visible = snippet.strip() and written[column : column + 1] != "\t"
    context = f"\n    {snippet}\n    {' ' * (column - start)}^" if visible else ""
    return RecipeError(what + context, where=at(line, column))
