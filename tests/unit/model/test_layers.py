from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.layers import (
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Linear,
    RMSNorm,
    make_feed_forward,
    make_norm,
)

X = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(0))


def filled(module):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def test_linear_is_torch_linear():
    layer, reference = filled(Linear(32, 7, bias=True)), torch.nn.Linear(32, 7)
    reference.load_state_dict(layer.state_dict())
    assert torch.equal(layer(X), reference(X))
    assert Linear(32, 7, bias=False).bias is None


def test_rmsnorm_is_its_formula():
    norm = filled(RMSNorm(32, epsilon=1e-3))
    expected = X.double() / (X.double().square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight.double()
    torch.testing.assert_close(norm(X).double(), expected, atol=1e-5, rtol=1e-5)


def test_layernorm_is_torch_layernorm():
    norm, reference = filled(LayerNorm(32, epsilon=1e-3)), torch.nn.LayerNorm(32, eps=1e-3)
    reference.load_state_dict(norm.state_dict())
    assert torch.equal(norm(X), reference(X))


def test_feed_forwards_are_their_formulas(tiny):
    gated = filled(GatedFeedForward(tiny.spec()))
    expected = (F.silu(X @ gated.gate.weight.T) * (X @ gated.up.weight.T)) @ gated.down.weight.T
    torch.testing.assert_close(gated(X), expected, atol=1e-4, rtol=1e-5)
    plain = filled(FeedForward(tiny.spec("gpt2")))
    inner = X @ plain.up.weight.T + plain.up.bias
    inner = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(plain(X), inner @ plain.down.weight.T + plain.down.bias, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_spec_chooses_and_the_inputs_dtype_computes(tiny, family):
    spec = tiny.spec(family)
    norm, ffn = filled(make_norm(spec)), filled(make_feed_forward(spec, 0))
    assert (type(norm), type(ffn)) == ((RMSNorm, GatedFeedForward) if family == "llama" else (LayerNorm, FeedForward))
    for module in (norm, ffn):
        low = X.to(torch.bfloat16).requires_grad_()
        out = module(low)
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
        assert {parameter.grad.dtype for parameter in module.parameters()} == {torch.float32}


def test_a_norm_with_an_offset_is_the_same_with_weights_gathered_in_16_bits() -> None:
    norm = RMSNorm(256, epsilon=1e-6, offset=1.0)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-0.9, 0.9, 256))
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    kept = norm(x)
    with torch.no_grad():
        norm.weight.copy_(norm.weight.bfloat16())
    assert torch.equal(norm(x), kept)
