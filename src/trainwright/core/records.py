"""Frozen dataclasses to JSON values and back, checked field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainwright.core.errors import DataError
from trainwright.core.paths import regular

T = TypeVar("T")

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Made once for each record type: building one takes a hundred times as long as using it."""


def to_json(record: Any) -> dict[str, Any]:
    """The record's fields as plain JSON values, nested records included."""
    plain: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return plain


def from_json(cls: type[T], data: Any, *, where: str) -> T:
    """A record from plain JSON values.

    Raises:
        DataError: a field is missing, unknown or of the wrong type; names the first one.
    """
    try:
        return _adapter(cls).validate_python(data, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise DataError(
            "not a valid {record}", where=where, seen=f"{path}: {first['msg']}", record=cls.__name__
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object that a file holds.

    Raises:
        DataError: the file is missing, cannot be read, or holds something else.
    """
    try:
        value = json.loads(regular(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("no such file", where=path) from error
    except (OSError, ValueError) as error:
        raise DataError("cannot read JSON", where=path, seen=getattr(error, "strerror", None) or str(error)) from error
    if not isinstance(value, dict):
        raise DataError("cannot read JSON", where=path, seen=type(value).__name__, expected="an object")
    return value


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]
