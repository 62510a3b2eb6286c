"""The table of stages: in order, complete, and without torch until a stage runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainwright.core.registry import load
from trainwright.pipeline.graph import STAGES, upstream


def test_every_stage_comes_after_what_it_needs() -> None:
    seen: set[str] = set()
    for stage in STAGES.values():
        assert set(stage.needs) <= seen, stage.name
        seen.add(stage.name)


@pytest.mark.parametrize("name", list(STAGES))
def test_every_stage_has_its_code(name) -> None:
    assert callable(load(STAGES[name].run, kind="stage"))


def test_upstream_is_what_is_needed_in_order() -> None:
    assert [stage.name for stage in upstream("train")] == ["doctor", "plan", "data", "train"]
    assert [stage.name for stage in upstream("data")] == ["data"]


def test_the_pipeline_itself_brings_no_torch() -> None:
    program = "import sys, trainwright.pipeline.runner; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
