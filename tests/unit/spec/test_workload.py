"""Workloads give reasons, not exceptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import Workload, recomputed_blocks

MODEL = ModelSection(layers=4, width=64, heads=4, context_tokens=128).spec(vocabulary=100)
WORK = Workload(sequence_tokens=128, batch_tokens=1024, steps=10, precision="fp32", optimizer="adamw")


def test_tokens_and_sequences() -> None:
    assert WORK.total_tokens == 10240
    assert WORK.batch_sequences == 8
    assert WORK.problems(MODEL) == ()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"sequence_tokens": 256, "batch_tokens": 256}, "exceeds the model's context (128)"),
        ({"batch_tokens": 1000}, "must be a multiple of sequence_tokens"),
        ({"steps": 0}, "must all be at least 1"),
        ({"expert_imbalance": 0.9}, "expert_imbalance must be at least 1, seen 0.9"),
        ({"expert_imbalance": float("inf")}, "expert_imbalance must be at least 1, seen inf"),
    ],
)
def test_impossible_workloads(change, part) -> None:
    assert any(part in reason for reason in replace(WORK, **change).problems(MODEL))


@pytest.mark.parametrize(
    ("budget", "blocks", "recomputed"), [(0.0, 12, 12), (0.5, 12, 6), (0.9, 12, 2), (0.7, 10, 3), (0.99, 2, 1)]
)
def test_a_budget_is_never_exceeded_by_what_blocks_keep(budget, blocks, recomputed):
    assert recomputed_blocks(budget, blocks) == recomputed
    assert (blocks - recomputed) / blocks <= budget
    assert (blocks - recomputed + 1) / blocks > budget
