"""A plan says what a teacher costs beside the network that it counts."""

from __future__ import annotations

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from fixtures.tiny_models import decoder, tokenizer, write_trained


def said(folder, teacher, *keys) -> dict[str, object]:
    plan = plan_of(planned_recipe(folder, "task.name=distill", f"task.teacher={teacher}", *keys))
    assert plan.unmeasured == {"task": "distill"}
    return {each.key: each.value for each in plan.estimate.assumptions if each.key.startswith("teacher")}


def test_bytes_and_operations_stand_among_the_assumptions(tmp_path) -> None:
    """Of a llama of 3 blocks, width 32, 4 heads of 8 with 2 of keys, ffn 48, 320 entries: counted by hand.

    A block has 32 (32 + 16 + 16 + 32) + 3 * 32 * 48 = 7,680 in matrices, and two norms of 32.
    """
    teacher = write_trained(tmp_path / "teacher", decoder(tied=False), tokenizer())
    parameters = 3 * (7_680 + 64) + 32 + 2 * 320 * 32
    assert sum(each.numel() for each in decoder(tied=False).parameters()) == parameters
    found = said(tmp_path, teacher, "train.precision=fp32", "train.sequence_tokens=64")
    assert found["teacher_megabytes"] == pytest.approx(4 * parameters / 1e6)
    products, scores = 2 * (3 * 7_680 + 320 * 32), 3 * 2 * 64 * 4 * 16
    assert found["teacher_mflops_per_token"] == pytest.approx((products + scores) / 1e6)
    half = said(tmp_path, teacher, "train.precision=bf16", "train.sequence_tokens=64")
    assert half["teacher_megabytes"] == pytest.approx(2 * parameters / 1e6)


def test_one_that_is_elsewhere_is_unknown(tmp_path) -> None:
    assert said(tmp_path, tmp_path / "nowhere") == {"teacher": "unknown"}
