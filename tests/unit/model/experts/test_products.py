"""Products by group against a product for each row."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.experts import products
from trainwright.model.experts.products import ExpertLinear, copied, groups_products, returned

COUNTS = torch.tensor([3, 0, 4, 1])


def layer_and_rows(dtype: torch.dtype, *, bias: bool) -> tuple[ExpertLinear, torch.Tensor]:
    layer = ExpertLinear(4, 16, 24, bias=bias).to(dtype)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    rows = torch.randn(8, 16, dtype=dtype, generator=torch.Generator().manual_seed(2))
    return layer, rows.requires_grad_()


def row_by_row(layer: ExpertLinear, x: torch.Tensor) -> torch.Tensor:
    experts = torch.repeat_interleave(COUNTS).tolist()
    rows = [layer.weight[expert] @ row for expert, row in zip(experts, x, strict=True)]
    return torch.stack(rows) if layer.bias is None else torch.stack(rows) + layer.bias[experts]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_products_and_gradients_are_those_of_each_row(monkeypatch, bias, grouped):
    """``grouped``: by the kernel that accelerators have, which torch computes on a processor too."""
    dtype = torch.float32 if grouped else torch.float64
    layer, x = layer_and_rows(dtype, bias=bias)
    monkeypatch.setattr(products, "groups_products", lambda *_, **__: grouped)
    wanted = (x, *layer.parameters())
    upstream = torch.randn(8, 24, dtype=dtype, generator=torch.Generator().manual_seed(3))
    y, expected = layer(x, COUNTS), row_by_row(layer, x)
    torch.testing.assert_close(y, expected)
    pairs = zip(torch.autograd.grad(y, wanted, upstream), torch.autograd.grad(expected, wanted, upstream), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


def test_a_processor_takes_groups_in_turn():
    x = torch.zeros(2, 16, dtype=torch.bfloat16)
    assert not groups_products(x, outputs=16)
    on_device = torch.zeros(2, 16, dtype=torch.bfloat16, device="meta")
    assert not groups_products(on_device, outputs=16)


def test_copies_come_back_to_their_tokens():
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    places = torch.argsort(order)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    rows = copied(x, order, places, active=2)
    assert torch.equal(rows, x[order // 2])
    back = returned(rows, order, places, active=2)
    assert torch.equal(back, x.unsqueeze(1).expand(-1, 2, -1))
    assert torch.autograd.gradcheck(lambda y: copied(y, order, places, active=2), x)
    assert torch.autograd.gradcheck(lambda y: returned(y, order, places, active=2), rows.detach().requires_grad_())
