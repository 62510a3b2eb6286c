"""Statistics by hand on rows of known error; then the whole table, as a guard."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fixtures.published import RUNS, record
from trainwright.core.errors import DataError
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.published_run import Refused, question, questions
from trainwright.planner.evidence.report import (
    calibrated,
    calibrated_by_first,
    errors,
    judge,
    judge_all,
    known_runs,
    memory_errors,
    references,
    report,
    speed_errors,
    verdicts,
)
from trainwright.planner.evidence.rows import Measured, read_records
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import Reference

NOTHING = Measured(tokens_per_s=None, derived=False, memory_bytes=None, memory_kind=None, out_of_memory=False)


def row(**columns):
    return question(record(**columns))


def judged(*, speed=None, memory=None, out=False, derived=False, verdict=None, **columns):
    """A row that was measured at so many times the prediction."""
    prediction = judge(row(**columns))
    measured = replace(
        NOTHING,
        tokens_per_s=speed and speed * prediction.tokens_per_s.mid,
        derived=derived,
        memory_bytes=memory and memory * prediction.memory_bytes.mid,
        out_of_memory=out,
    )
    return replace(prediction, row=replace(prediction.row, measured=measured), verdict=verdict or prediction.verdict)


# ----------------------------------------------------------------------------------------------------------- statistics
def test_errors_by_hand():
    statistics = errors([0.9, 1.0, 1.2, 2.0, 0.5], [True, True, False, False, True])
    assert (statistics.rows, statistics.median, statistics.bias, statistics.in_range) == pytest.approx(
        (5, 0.2, 0.0, 0.6)
    )
    assert statistics.mean == pytest.approx((0.1 + 0 + 0.2 + 1.0 + 0.5) / 5)
    assert statistics.p90 == pytest.approx(np.percentile([0.1, 0, 0.2, 1.0, 0.5], 90))
    assert errors([], []) is None


def test_ratios_are_predicted_over_measured():
    assert judged(speed=2.0).speed_ratio == pytest.approx(0.5)
    assert judged(memory=0.8).memory_ratio == pytest.approx(1.25)
    assert judged().speed_ratio is None is judged().memory_ratio


def test_a_measured_value_in_the_range_is_held():
    near, far = judged(speed=1.05, memory=1.02), judged(speed=3.0, memory=3.0)
    assert (speed_errors([near]).in_range, speed_errors([far]).in_range) == (1.0, 0.0)
    assert (memory_errors([near]).in_range, memory_errors([far]).in_range) == (1.0, 0.0)
    assert speed_errors([near, far]).in_range == 0.5
    assert memory_errors([judged()]) is None


def test_verdicts_are_counted_over_rows_that_know():
    rows = [
        judged(memory=1, verdict="fits"),
        judged(memory=1, verdict="fits"),
        judged(memory=1, verdict="does not fit"),
        judged(memory=1, verdict="uncertain"),
        judged(out=True, verdict="does not fit"),
        judged(out=True, verdict="uncertain"),
        judged(out=True, verdict="fits"),
        judged(speed=1, verdict="does not fit"),  # says nothing of memory
    ]
    counted = verdicts(rows)
    assert (counted.ran, counted.ran_out, counted.uncertain) == (4, 3, 2)
    assert counted.right == pytest.approx(3 / 5)
    assert counted.false_alarms == pytest.approx(1 / 4)
    assert (counted.recall, counted.recall_with_uncertain) == pytest.approx((1 / 3, 2 / 3))
    assert verdicts([judged(speed=1)]) is None


def test_rows_stand_in_their_groups_and_derived_ones_apart():
    rows = [
        judged(speed=1.0, source_repo_or_paper="a"),
        judged(speed=0.5, source_repo_or_paper="b"),
        judged(speed=0.1, derived=True, source_repo_or_paper="b"),
        judged(memory=2.0, source_repo_or_paper="b"),
    ]
    refused = [Refused(id="x", source="a", line=9, reason="why")]
    summary = report(rows, refused, worst=1)
    assert (summary.rows, summary.predicted, summary.coverage) == (5, 4, 0.8)
    assert (summary.speed.rows, summary.derived.rows, summary.memory.rows) == (2, 1, 1)
    by_source = {group.name: group for group in summary.groups if group.by == "source"}
    assert (by_source["a"].speed.median, by_source["b"].speed.median) == pytest.approx((0.0, 1.0))
    assert by_source["b"].memory.rows == 1 and by_source["a"].memory is None
    assert {group.by for group in summary.groups} == {"source", "framework", "device", "model class"}
    assert [each.speed_ratio for each in summary.worst_speed] == [pytest.approx(2.0)]
    assert [each.memory_ratio for each in summary.worst_memory] == [pytest.approx(0.5)]


def test_the_worst_are_farthest_in_either_direction():
    rows = [judged(speed=speed) for speed in (1.1, 4.0, 0.5, 1.0)]
    assert [each.speed_ratio for each in report(rows, [], worst=2).worst_speed] == pytest.approx([0.25, 2.0])


def test_no_rows_are_no_statistics():
    summary = report([], [])
    assert (summary.rows, summary.coverage, summary.speed, summary.memory, summary.verdicts) == (
        0,
        0.0,
        None,
        None,
        None,
    )


# --------------------------------------------------------------------------------------------------------- predicting
def test_a_row_is_judged_by_the_forecast_that_plans_use():
    one = row(cpu_offload="yes")
    run = one.placed.run
    prediction = forecast(run, Layouts.one(one.placed), CATALOGUE)
    assert judge(one).tokens_per_s.mid == pytest.approx(prediction.tokens_per_s_per_device[0])
    assert judge(one).tokens_per_s.mid < judge(row()).tokens_per_s.mid


def test_the_kind_of_memory_that_was_measured_is_predicted():
    kinds = [
        judge(row(notes=notes, peak_mem_gib_per_gpu=1)).memory_bytes.mid
        for notes in ("mem allocated", "mem reserved", "nvidia-smi")
    ]
    assert kinds == sorted(kinds) and len(set(kinds)) == 3


def test_the_last_rank_is_judged_as_the_last_rank():
    columns = {"framework": "Megatron-Core", "pp": 4, "dp_shard_or_fsdp": "zero1:2", "peak_mem_gib_per_gpu": 1}
    last, worst = judge(row(notes="allocated on the LAST rank", **columns)), judge(row(notes="allocated", **columns))
    assert last.memory_bytes.mid < worst.memory_bytes.mid
    assert last.verdict == worst.verdict


def test_what_cannot_be_predicted_is_refused():
    judged, refused = judge_all([row(), row(gpu="GTX 1080 Ti", dtype="fp16", n_gpus=1, dp_shard_or_fsdp="ddp:1")])
    assert len(judged) == 1
    assert refused[0].reason.startswith("gtx-1080-ti: no peak rate for fp16")


# -------------------------------------------------------------------------------------------------------- calibration
def test_a_constant_bias_is_learnt_from_one_run():
    rows = [judged(speed=0.8, memory=1.1, id=str(n), global_batch=8 * n, seq_len=2048 * n) for n in (1, 2, 3)]
    first, *others = rows
    learnt = calibrated(others, references([first]))
    for before, after in zip(others, learnt, strict=True):
        assert abs(after.speed_ratio - 1) < 0.8 * abs(before.speed_ratio - 1)
        assert abs(after.memory_ratio - 1) < 0.9 * abs(before.memory_ratio - 1)
        assert width(after.tokens_per_s) < width(before.tokens_per_s)
        assert width(after.memory_bytes) == pytest.approx(width(before.memory_bytes))


def width(span):
    return span.high / span.low


def test_what_is_learnt_of_memory_decides_whether_a_row_fits():
    """A row near to the device's memory fits where one like it took a fifth less, and not where it took more."""
    sizes = [judged(id=str(n), micro_batch=n, global_batch=8 * n) for n in range(1, 65)]
    near = next(each for each in sizes if each.verdict == "uncertain")
    found = []
    for memory in (0.8, 1.3):
        like = Reference(placed=near.row.placed, log_speed=0.0, log_memory=np.log(memory))
        (after,) = calibrated([near], [like])
        found.append(after.verdict)
        ratio = after.memory_bytes.mid / near.memory_bytes.mid
        # What is used grows with it; beyond the device's memory the allocator keeps nothing unused beside that.
        assert ratio == pytest.approx(memory, rel=0.05) if memory < 1 else 1.1 < ratio <= memory
    assert found == ["fits", "does not fit"]


def test_the_first_of_each_source_and_device_is_known_and_not_judged():
    rows = [
        judged(speed=0.8, id="a1", source_repo_or_paper="a"),
        judged(speed=0.8, id="a2", source_repo_or_paper="a"),
        judged(speed=0.5, id="b1", source_repo_or_paper="b"),
        judged(speed=0.8, id="a3", source_repo_or_paper="a"),
        judged(speed=0.8, id="a4", source_repo_or_paper="a", gpu="A100-80GB"),
    ]
    learnt = calibrated_by_first(rows)
    assert [each.row.id for each in learnt] == ["a2", "a3"]
    assert all(each.speed_ratio == pytest.approx(1.0, abs=0.01) for each in learnt)


def test_runs_that_measured_nothing_teach_nothing():
    (nothing,) = references([judged()])
    assert nothing.log_speed is None is nothing.log_memory
    before = judged(speed=0.8)
    (after,) = calibrated([before], [nothing])
    assert after.tokens_per_s == before.tokens_per_s


# ----------------------------------------------------------------------------------------------------- the whole table
@pytest.fixture(scope="module")
def whole():
    rows, refused = questions(read_records(RUNS))
    judged, more = judge_all(rows)
    return judged, [*refused, *more]


def test_the_whole_table_stays_predicted(whole):
    """Loose bounds, on rows that the numbers were fitted to: a guard against breaking, no claim for other rows."""
    summary = report(*whole)
    assert summary.rows == 1060
    assert summary.coverage > 0.95
    assert summary.speed.median < 0.08 and summary.speed.p90 < 0.33 and abs(summary.speed.bias) < 0.03
    assert summary.memory.median < 0.06 and summary.memory.p90 < 0.20 and abs(summary.memory.bias) < 0.03
    assert summary.speed.in_range > 0.8 and summary.memory.in_range > 0.8
    assert summary.verdicts.right > 0.95 and summary.verdicts.false_alarms < 0.03
    assert summary.verdicts.recall_with_uncertain > 0.85
    assert all(each.reason for each in summary.refused)


def test_fits_is_hardly_ever_said_of_what_ran_out(whole):
    wrong = [each.row.id for each in whole[0] if each.row.measured.out_of_memory and each.verdict == "fits"]
    assert len(wrong) <= 2, wrong


def test_fine_tuning_with_pure_states_is_within_the_noise(whole):
    """fms-acceleration's rows: five times two bytes a parameter at the update's peak, where nothing else is larger."""
    rows = [each for each in whole[0] if each.row.source.startswith("foundation-model-stack")]
    assert len(rows) > 100
    assert memory_errors(rows).median < 0.03


def test_tokens_of_all_devices_are_no_measurement_of_one(tmp_path):
    """Llama 3 8B: 56,000 tokens/s are 2.9e15 FLOP/s, three times what an H100's datasheet has."""
    run = {"framework": "torchtitan", "model": "llama3-8b", "seq_len": 8192, "gpu": "h100", "n_gpus": 8}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run | {"dp_shard_or_fsdp": "fsdp_full:8", "tokens_per_s_per_gpu": 7000}))
    assert len(known_runs(path)) == 1
    path.write_text(json.dumps(run | {"dp_shard_or_fsdp": "fsdp_full:8", "tokens_per_s_per_gpu": 8 * 7000}))
    with pytest.raises(DataError, match="no device computes so much .*56,000 tokens/s of a device"):
        known_runs(path)
    path.write_text(json.dumps(run | {"dp_shard_or_fsdp": "fsdp_full:8", "peak_mem_gib_per_gpu": 120}))
    with pytest.raises(DataError, match="no h100-sxm holds so much .*a peak of 120 GiB"):
        known_runs(path)
