"""Which batch a step reads, against a list from which batches were taken."""

from __future__ import annotations

from itertools import combinations

from trainwright.stages.train.faults.passing_over import place


def test_places_are_those_of_a_list_without_what_is_passed_over() -> None:
    for size in range(4):
        for left_out in combinations(range(7), size):
            order = [number for number in range(20) if number not in left_out]
            assert [place(step, left_out) for step in range(12)] == order[:12]
