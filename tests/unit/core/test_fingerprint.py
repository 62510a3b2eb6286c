from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from trainwright.core.fingerprint import canonical, digest, file_digest, fingerprint


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    names: tuple[str, ...] = ("a",)


class Section(BaseModel):
    lr: float = 3e-4
    names: tuple[str, ...] = ("a",)


def test_the_text_is_json_with_sorted_keys():
    assert canonical({"b": [1, None, True], "a": "é"}) == '{"a":"é","b":[1,null,true]}'


def test_records_count_by_their_fields():
    assert canonical(Shape(width=3)) == canonical({"names": ["a"], "width": 3})
    assert canonical({"s": Section()}) == '{"s":{"lr":0.0003,"names":["a"]}}'


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))
    for value in ({1, 2}, object(), b"bytes", {1: "a"}, {"a": {True: "b"}}, [{None: 1}], Shape):
        with pytest.raises(TypeError, match="canonical form"):
            canonical(value)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers() | st.text(st.characters(codec="utf-8"))))
def test_order_of_keys_does_not_matter(value):
    backwards = dict(reversed(list(value.items())))
    assert digest(value) == digest(backwards)
    assert digest(value) == hashlib.sha256(canonical(value).encode()).hexdigest()
    assert json.loads(canonical(value)) == value


def test_a_fingerprint_is_the_same_in_every_process():
    code = (
        "from trainwright.core.fingerprint import fingerprint;"
        "print(fingerprint(stage='data', version=1, identity={'b': 0.1, 'a': 'x'}, inputs={'y': '1', 'x': '2'}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = fingerprint(stage="data", version=1, identity={"a": "x", "b": 0.1}, inputs={"x": "2", "y": "1"})
    assert other == here


def test_every_part_of_a_fingerprint_counts():
    base = {"stage": "data", "version": 1, "identity": {"a": 1}, "inputs": {"x": "1"}}
    changes = ({}, {"stage": "train"}, {"version": 2}, {"identity": {"a": 2}}, {"inputs": {}})
    assert len({fingerprint(**base | change) for change in changes}) == 5


def test_a_file_is_its_bytes(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"x" * 3_000_001)
    assert file_digest(path) == hashlib.sha256(b"x" * 3_000_001).hexdigest()
