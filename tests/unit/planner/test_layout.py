from dataclasses import replace

from fixtures.planned_models import LLAMA
from trainwright.planner.layout import choose, evaluate, micro_batches


def test_micro_batches_divide_the_batch(workload):
    assert micro_batches(workload) == (8, 4, 2, 1)
    assert micro_batches(replace(workload, batch_tokens=6 * 512)) == (6, 3, 2, 1)


def test_with_room_the_largest_is_taken_and_the_others_say_why_not(workload, device):
    layout, rejected = choose(LLAMA, workload, device, sequences=micro_batches(workload))
    assert layout.fits
    assert layout.batch.sequences == 8
    assert [other.name for other in rejected] == ["micro_batch=4", "micro_batch=2", "micro_batch=1"]
    assert all("slower" in other.reason or "not faster" in other.reason for other in rejected)


def test_too_large_ones_are_rejected_with_both_sizes(workload, device):
    room = evaluate(LLAMA, workload, device, sequences=2).memory.total_bytes
    tight = replace(device, memory_available_bytes=room + 1)
    layout, rejected = choose(LLAMA, workload, tight, sequences=micro_batches(workload))
    assert layout.batch.sequences == 2
    assert layout.accumulation == 4
    assert rejected[0].reason.startswith("does not fit: needs")


def test_where_none_fits_the_smallest_is_returned_unfit(workload, device):
    layout, rejected = choose(
        LLAMA, workload, replace(device, memory_available_bytes=1.0), sequences=micro_batches(workload)
    )
    assert not layout.fits
    assert layout.batch.sequences == 1
    assert len(rejected) == 3
