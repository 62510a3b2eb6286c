import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.planner.rates.probed import interpolate


@given(st.integers(1, 10**6), st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-3, 1e12)), min_size=1, max_size=6))
def test_interpolation_stays_within_what_was_measured(point, known):
    places = [((place,), value) for place, value in known]
    values = [value for _, value in known]
    between = interpolate((point,), places)
    assert min(values) * (1 - 1e-9) <= between <= max(values) * (1 + 1e-9)


def test_interpolation_is_exact_where_it_was_measured_and_halfway_in_between():
    known = [((100,), 1.0), ((10_000,), 100.0)]
    assert interpolate((100,), known) == 1.0
    assert interpolate((1000,), known) == pytest.approx(10.0)
    with pytest.raises(ValueError, match="nothing was measured"):
        interpolate((1,), [])
