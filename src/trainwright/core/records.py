"""Frozen dataclasses to JSON values and back, checked field by field."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainwright.core.errors import DataError

T = TypeVar("T")

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Made once for each record type: building one takes a hundred times as long as using it."""


def to_json(record: Any) -> dict[str, Any]:
    """Returns the record's fields as plain JSON values, nested records included."""
    plain: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return plain


def from_json(cls: type[T], data: Any, *, where: str) -> T:
    """Returns a record from plain JSON values.

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


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]
