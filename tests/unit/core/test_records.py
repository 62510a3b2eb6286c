"""Records survive JSON; what does not fit is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import DataError
from trainwright.core.records import from_json, to_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    kind: Literal["cpu", "cuda"]
    speed: float
    count: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    name: str
    parts: tuple[Part, ...] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)


PARTS = st.builds(
    Part,
    kind=st.sampled_from(["cpu", "cuda"]),
    speed=st.floats(allow_nan=False, allow_infinity=False),
    count=st.none() | st.integers(),
)
WHOLES = st.builds(
    Whole,
    name=st.text(),
    parts=st.lists(PARTS, max_size=3).map(tuple),
    sizes=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
)


@given(WHOLES)
def test_every_record_comes_back_from_its_text(record):
    assert from_json(Whole, json.loads(json.dumps(to_json(record))), where="w.json") == record


def test_nested_records_are_plain_values():
    record = Whole(name="a", parts=(Part(kind="cpu", speed=1.5),), sizes={"x": 2.0})
    assert to_json(record) == {
        "name": "a",
        "parts": [{"kind": "cpu", "speed": 1.5, "count": None}],
        "sizes": {"x": 2.0},
    }


def test_fields_with_a_default_may_be_absent():
    assert from_json(Whole, {"name": "a"}, where="w.json") == Whole(name="a")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "a", "parts": [{"kind": "tpu", "speed": 1.0}]}, "parts.0.kind"),
        ({"name": "a", "parts": [{"kind": "cpu"}]}, "parts.0.speed"),
        ({"name": "a", "sizes": {"x": "much"}}, "sizes.x"),
        ({"name": "a", "shape": 3}, "shape: "),
        ({"name": "a", "parts": [{"kind": "cpu", "speed": 1.0, "shape": 3}]}, "parts.0.shape: "),
        ([1, 2], "Whole"),
        (None, "Whole"),
    ],
)
def test_the_first_misfit_is_named_with_its_file(data, named):
    with pytest.raises(DataError) as caught:
        from_json(Whole, data, where="w.json")
    assert str(caught.value).startswith("w.json: ")
    assert named in str(caught.value)
