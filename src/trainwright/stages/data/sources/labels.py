"""Labels of records, as documents carry them: a name, or the names of a set as JSON, sorted and each once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

NAMES = "a list of strings or whole numbers"


def set_of(names: Any) -> str | None:
    """Returns a set of labels as a document carries it; None where a value is no list of strings or whole numbers.

    An empty list is a set: the document has none of the labels.
    """
    if not isinstance(names, list) or not all(map(_is_name, names)):
        return None
    return json.dumps(sorted({str(name).strip() for name in names}), ensure_ascii=False)


def set_in(text: str, separator: str) -> str:
    """Returns the set of labels that a text names between separators; none where it is empty."""
    names = {name.strip() for name in text.split(separator)}
    return json.dumps(sorted(names - {""}), ensure_ascii=False)


def names_in(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names in sets of labels, sorted and each once."""
    return tuple(sorted({name for each in labels for name in json.loads(each)}))


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (isinstance(value, int) and not isinstance(value, bool))
