"""What a network says of itself, against its parameters; the head's loss against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.losses import IGNORE


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_matrices_are_the_blocks_own_and_tables_are_looked_up_by_row(tiny, family) -> None:
    network = tiny.decoder(family)
    parameters = dict(network.named_parameters())
    assert {name for name, p in parameters.items() if p.ndim == 2 and name.startswith("blocks.")} == set(
        network.matrices()
    )
    assert set(network.tables()) == ({"embedding"} if family == "llama" else {"embedding", "positions"})
    for name, parameter in {**network.matrices(), **network.tables()}.items():
        assert parameter is parameters[name]
    assert network.has_position_table == (family == "gpt2")


@pytest.mark.parametrize(("tied", "name"), [(True, None), (False, "head.weight")])
def test_a_head_of_its_own_has_a_name_and_a_tied_one_is_the_embedding(tiny, tied, name) -> None:
    assert tiny.decoder(tied=tied).head_name() == name


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_s_loss_is_the_cross_entropy_of_its_logits(tiny, tied) -> None:
    network = tiny.decoder(tied=tied)
    hidden = network(torch.randint(0, 320, (2, 9), generator=torch.Generator().manual_seed(0))).flatten(0, 1)
    targets = torch.randint(0, 320, (18,), generator=torch.Generator().manual_seed(1))
    targets[4] = IGNORE
    loss, weight = network.head_loss(hidden, targets)
    expected = F.cross_entropy(network.logits(hidden), targets, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-5)
    assert int(weight) == 17
    assert network.device == network.embedding.device
