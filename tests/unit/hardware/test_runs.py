from trainwright.hardware.runs import read_runs


def test_the_numbers_have_a_source_and_a_date():
    found = read_runs()
    assert found.source and found.recorded
    assert 0 <= found.overhead < 2 and found.overhead_days > 0 and found.start_s > 0 and found.spread > 0
