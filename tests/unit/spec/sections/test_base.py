"""Sections refuse unknown keys, non-numbers and changes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.base import Section


class Example(Section):
    rate: float = 1.0


def test_unknown_keys_nan_and_changes_are_refused() -> None:
    for bad in ({"rat": 1.0}, {"rate": float("nan")}, {"rate": float("inf")}):
        with pytest.raises(ValidationError):
            Example.model_validate(bad)
    with pytest.raises(ValidationError):
        Example().rate = 2.0
