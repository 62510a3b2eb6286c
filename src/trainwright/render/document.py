"""The JSON document of a command: plain values of nouns under a schema.

Numbers that JSON cannot say (NaN, infinity) are null.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def document(name: str, payload: Mapping[str, Any], *, version: int, only_ascii: bool = False) -> str:
    """Returns the JSON document of a command; characters beyond ASCII are escaped where ``only_ascii``."""
    plain = {"schema": f"trainwright.{name}/{version}", **_plain(payload)}
    return json.dumps(plain, indent=2, ensure_ascii=only_ascii, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON values of dataclasses, pydantic models, paths, tuples and sets."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
