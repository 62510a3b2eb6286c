"""Content addresses: one canonical text per value, one sha256 per text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; equal values give equal text on every platform.

    Dataclasses and pydantic models are taken by their fields. Refused are sets, which have no order, and keys that are
    not texts, because JSON would make one key of ``1`` and ``"1"``.

    Raises:
        TypeError: a value that has no canonical form.
        ValueError: NaN or infinity, which JSON cannot say.
    """
    plain = _plain(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical text of ``value``, lone surrogates (of a file name that is not UTF-8) included."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's bytes, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(*, stage: str, version: int, identity: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Returns the address of a stage's result: its name, version, identity configuration and input digests."""
    return digest({"stage": stage, "version": version, "identity": identity, "inputs": dict(inputs)})
