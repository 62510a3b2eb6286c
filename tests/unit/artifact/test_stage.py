"""The result of a stage goes into the manifest as it is."""

from __future__ import annotations

from trainwright.artifact.stage import StageResult


def test_execution_is_optional_and_not_shared() -> None:
    first, second = StageResult(summary={"tokens": 1}), StageResult(summary={"tokens": 1})
    assert first == second
    assert first.execution is not second.execution
