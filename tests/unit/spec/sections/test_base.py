"""Sections refuse unknown keys, non-numbers and changes."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.base import Count, Seconds, Section, Workers


class Example(Section):
    rate: float = 1.0
    rates: tuple[float, float] | None = None
    workers: Workers | Literal["auto"] = "auto"
    count: Count = 1
    seconds: Seconds = 0.0
    wanted: bool | Literal["auto"] = "auto"
    name: str = ""


def test_unknown_keys_nan_and_changes_are_refused() -> None:
    for bad in ({"rat": 1.0}, {"rate": float("nan")}, {"rate": float("inf")}):
        with pytest.raises(ValidationError):
            Example.model_validate(bad)
    with pytest.raises(ValidationError):
        Example().rate = 2.0


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_number_and_no_text(value) -> None:
    for key in ("rate", "workers", "count", "seconds", "name"):
        with pytest.raises(ValidationError, match=key):
            Example.model_validate({key: value})
    with pytest.raises(ValidationError, match=r"rates\.1"):
        Example.model_validate({"rates": [0.5, value]})
    assert Example.model_validate({"wanted": value}).wanted is value
