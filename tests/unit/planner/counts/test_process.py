import pytest

from trainwright.planner.counts.process import process_from
from trainwright.testing.machine import BASELINE_BYTES, TRANSIENT, WASTE, fake_probes


def test_probes_at_two_depths_tell_waste_from_temporaries():
    process = process_from(fake_probes().growth, BASELINE_BYTES, near_bytes=1e7)
    assert process.baseline_bytes == BASELINE_BYTES
    assert process.waste == pytest.approx(WASTE, rel=1e-4)
    assert process.transient == pytest.approx(TRANSIENT, rel=1e-4)


def test_one_depth_says_nothing():
    with pytest.raises(ValueError, match="two depths"):
        process_from(fake_probes().growth[:1], BASELINE_BYTES, near_bytes=1e7)
