"""What a pipeline does not run with the torch that is here; more in ``tests/unit/stages/train/test_layout.py``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.pipeline import refusals as module


@pytest.mark.parametrize(
    ("release", "refused"),
    [("2.11.0+cu130", True), ("2.12.1", True), ("2.13.0+cpu", False), ("3.0.0", False), ("", False)],
)
def test_a_backward_pass_is_split_by_a_torch_that_can(release, refused, monkeypatch) -> None:
    def version(_: str) -> str:
        if not release:
            raise PackageNotFoundError("torch")
        return release

    monkeypatch.setattr(module, "version", version)
    module.splits.cache_clear()
    try:
        said = list(module.refusals(ParallelPlan(pp=2, schedule="zero_bubble"), "none", 4))
        assert list(module.refusals(ParallelPlan(pp=2), "none", 4)) == []
    finally:
        module.splits.cache_clear()
    assert [line.endswith("set schedule=1f1b, or take torch 2.13") for line in said] == [True] * refused
