"""A recipe as YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainwright.core.config.text import scalar


def yaml_lines(value: Any, key: str = "", indent: str = "", lead: str = "") -> Iterator[tuple[str, str]]:
    """Yields the lines of a JSON-like value as YAML 1.2, each with the dotted key of the value that stands on it."""
    if isinstance(value, dict) and value:
        for index, (name, item) in enumerate(value.items()):
            start = f"{lead if index == 0 else indent}{_yaml_scalar(name)}:"
            inner = f"{key}.{name}" if key else name
            if isinstance(item, (dict, list)) and item:
                yield start, ""
                yield from yaml_lines(item, inner, f"{indent}  ", f"{indent}  ")
            else:
                yield f"{start} {_yaml_scalar(item)}", inner
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            start = f"{lead if index == 0 else indent}- "
            yield from yaml_lines(item, f"{key}.{index}", f"{indent}  ", start)
    else:
        yield f"{lead}{_yaml_scalar(value)}", key


def _yaml_scalar(value: Any) -> str:
    """JSON, which YAML includes; words that need no quotes have none."""
    plain = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum() and not value.startswith("-")
    if plain and isinstance(scalar(value), str):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
