import pytest

from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.spec.efficiency import Efficiency


def test_a_number_that_the_catalogue_lacks_has_no_other_place():
    with pytest.raises(TypeError, match=r"bandwidth.*launch_s.*bubble"):
        Efficiency(products={}, attention={}, precisions={}, traffic={})


def test_shares_are_physical():
    found = read_efficiency()
    shares = (found.bandwidth, found.unaligned, found.bubble, found.tensor, found.context, found.expert, found.sharded)
    assert all(0 < share <= 1 for share in (*shares, found.overlap, found.selective, found.fused_loss))
    tables = (found.products, found.attention, found.precisions, found.matmul)
    assert all(0 < share <= 1 for table in tables for share in table.values())
