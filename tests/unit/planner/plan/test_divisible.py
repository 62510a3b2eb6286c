from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.plan.question import divisible


@given(st.integers(1, 5000))
def test_a_batch_is_rounded_to_the_most_powers_of_two(sequences):
    batch = divisible(sequences)
    near = [each for each in range(1, 6000) if abs(each - sequences) <= 0.05 * sequences + 1e-9]
    most = max(each & -each for each in near)
    assert batch in near
    assert batch & -batch == most
    assert divisible(512) == 512 and divisible(488) == 512


def test_a_batch_can_be_a_multiple_of_what_one_has():
    assert divisible(488, unit=24) == 480
    assert divisible(512, unit=24) == 528
    # No multiple of 24 is near 10.
    assert divisible(10, unit=24) == 10
