"""A world of one process shares nothing, agrees with itself and has everything."""

from __future__ import annotations

import torch

from fixtures.tiny_models import decoder
from trainwright.stages.train.world import ALONE


def test_one_process_has_everything() -> None:
    network = decoder()
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    ALONE.share(network, compiled=True)
    after = dict(ALONE.whole(network.named_parameters()))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [id(each) for each in ALONE.local(network.parameters())] == [id(each) for each in network.parameters()]
    value = torch.arange(3.0)
    assert torch.equal(ALONE.part(torch.zeros(3), value), value)


def test_one_process_leads_and_agrees_with_itself() -> None:
    assert (ALONE.leads, ALONE.ranks, ALONE.rows(8)) == (True, 1, None)
    assert ALONE.agreed(3.5, "SIGTERM") == (3.5, "SIGTERM")
