"""Plans stay what they were: a move of code changes no number; a better prediction changes the golden file with it."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[3] / "golden" / "plans"
WRITER = runpy.run_path(str(GOLDEN / "write.py"))
COMMANDS = WRITER["commands"]()
CLOSE = 1e-9
"""Relative: processors differ in the last digits of a logarithm."""


def differences(golden: Any, now: Any, place: str = "") -> list[str]:
    """Where two JSON values differ, and how."""
    if isinstance(golden, dict) and isinstance(now, dict):
        keys = sorted(golden.keys() | now.keys())
        return [text for key in keys for text in differences(golden.get(key), now.get(key), f"{place}.{key}")]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = enumerate(zip(golden, now, strict=True))
        return [text for number, (one, other) in pairs for text in differences(one, other, f"{place}[{number}]")]
    if isinstance(golden, float) and isinstance(now, (int, float)) and math.isclose(golden, now, rel_tol=CLOSE):
        return []
    return [] if golden == now else [f"{place}: {golden!r} -> {now!r}"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plan_is_its_golden_file(name):
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    changed = differences(golden, WRITER["planned"](COMMANDS[name]))
    assert not changed, f"{len(changed)} values differ (python tests/golden/plans/write.py): " + "; ".join(changed[:5])


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"sweep"}))
def test_each_assumption_has_one_key_for_programs(name):
    answer = WRITER["planned"](COMMANDS[name])
    estimate = answer.get("inference") or answer["plan"]["estimate"]
    keys = [each["key"] for each in estimate["assumptions"]]
    assert len(set(keys)) == len(keys) > 5 and all(key.isidentifier() for key in keys)


def test_a_difference_is_found_wherever_it_stands():
    one = {"a": [1.0, {"b": "x"}], "c": 2}
    assert differences(one, {"a": [1.0 + 1e-12, {"b": "x"}], "c": 2}) == []
    assert differences(one, {"a": [1.1, {"b": "y"}]}) == [".a[0]: 1.0 -> 1.1", ".a[1].b: 'x' -> 'y'", ".c: 2 -> None"]
