from trainwright.spec.efficiency import Efficiency


def test_numbers_of_what_no_row_measured_have_defaults():
    plain = Efficiency(products={}, attention={}, precisions={}, traffic={})
    shares = (plain.bandwidth, plain.unaligned, plain.tiles, plain.bubble, plain.tensor, plain.sharded)
    assert all(0 < share <= 1 for share in shares)
    assert not plain.doubt and not plain.seen and plain.adapted >= 1
