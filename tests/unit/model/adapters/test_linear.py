"""An adapted layer: what it computes, what it saves for the backward pass beside PEFT's, and merging."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from trainwright.model.adapters.linear import AdaptedLinear
from trainwright.model.layers import Linear
from trainwright.spec.parts.adaptation import LowRank

HOW = LowRank(rank=3, scale=0.5)


def layer_with(*names, bias=False, magnitude=False, dtype=torch.float32, inputs=8, outputs=6):
    generator = torch.Generator().manual_seed(1)
    base = Linear(inputs, outputs, bias=bias)
    layer = AdaptedLinear(base)
    for name in names:
        layer.add(name, HOW, magnitude=magnitude)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    layer.weight.requires_grad_(False)
    layer.active = names
    return layer.to(dtype)


@pytest.mark.parametrize("bias", [False, True])
def test_low_rank_is_the_sum_of_two_products(bias) -> None:
    layer = layer_with("one", bias=bias, dtype=torch.float64)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    factors = layer.adapters["one"]
    expected = x @ layer.weight.T + 0.5 * (x @ factors.a.T) @ factors.b.T
    assert torch.allclose(layer(x), expected + (layer.bias if bias else 0.0), atol=1e-12)
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


@pytest.mark.parametrize("bias", [False, True])
def test_lengths_of_rows_are_what_dora_trains(bias) -> None:
    """Equation 5 of Liu et al. (2024), and of section 4.3: the length is a constant in the gradient."""
    layer = layer_with("one", bias=bias, magnitude=True, dtype=torch.float64)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    factors = layer.adapters["one"]
    whole = layer.weight + 0.5 * factors.b @ factors.a
    ratio = factors.magnitude / torch.linalg.vector_norm(whole, dim=1).detach()
    expected = F.linear(x, ratio.unsqueeze(1) * whole, layer.bias)
    assert torch.allclose(layer(x), expected, atol=1e-12)
    wanted = (factors.a, factors.b, factors.magnitude)
    ours = torch.autograd.grad(layer(x).square().sum(), wanted)
    theirs = torch.autograd.grad(expected.square().sum(), wanted)
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("magnitude", [False, True])
@pytest.mark.parametrize("names", [("one",), ("one", "two")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_computes_the_same_and_unmerged_has_the_same_bits(names, magnitude, dtype) -> None:
    layer = layer_with(*names, bias=True, magnitude=magnitude)
    layer.weight.data = layer.weight.data.to(dtype)
    x = torch.randn(4, 8).to(dtype)
    before, expected = layer.weight.clone(), layer(x)
    layer.merge()
    assert not torch.equal(layer.weight, before)
    tolerance = 1e-5 if dtype == torch.float32 else 0.2
    assert torch.allclose(layer(x), expected, atol=tolerance, rtol=tolerance)
    layer.merge()  # twice is once
    layer.unmerge()
    assert torch.equal(layer.weight, before)
    assert torch.equal(layer(x), expected)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="already"):
        layer_with("one").add("one", HOW, magnitude=False)


def saved_bytes(run, known=()) -> int:
    """Bytes of the storages that a pass keeps, each once, without parameters."""
    known = {tensor.untyped_storage().data_ptr() for tensor in known}
    storages: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()  # alive until all is counted: no address stands for two storages
    del kept
    return sum(storages.values())


def test_no_copy_of_the_input_is_saved_where_peft_saves_one() -> None:
    """Three layers on one bf16 input, as query, key and value: one shared input, against a cast copy for each."""
    peft = pytest.importorskip("peft")
    tokens, width, rank = 64, 128, 4
    x = torch.randn(1, tokens, width, dtype=torch.bfloat16, requires_grad=True)

    ours = torch.nn.ModuleList(layer_with("one", inputs=width, outputs=width) for _ in range(3))
    for layer in ours:
        layer.weight.data = layer.weight.data.to(torch.bfloat16)
    mine = saved_bytes(lambda: [layer(x) for layer in ours], ours.parameters())

    theirs = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(3)))
    config = peft.LoraConfig(r=rank, target_modules=["0", "1", "2"], lora_dropout=0.0)
    model = peft.get_peft_model(theirs, config, autocast_adapter_dtype=True).base_model.model
    peers = saved_bytes(lambda: [layer(x) for layer in model], model.parameters())

    one_input = tokens * width * 2
    factors = 3 * (2 * 3 * width * 2 + tokens * 3 * 2)  # casts of a and b, and what lies between them, of rank 3
    assert mine == one_input + factors
    assert peers >= 3 * 2 * one_input, "a copy in fp32 for each layer"
