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

    Dataclasses and pydantic models are taken by their fields, sets are refused because they have no order.

    Raises:
        TypeError: a value that has no canonical form.
        ValueError: NaN or infinity, which JSON cannot say.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical text of ``value``."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's bytes, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(*, stage: str, version: int, identity: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The address of a stage's result: its name, version, identity configuration and input digests."""
    return digest({"stage": stage, "version": version, "identity": identity, "inputs": dict(inputs)})
