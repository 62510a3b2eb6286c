"""What an encoder's tokens see, and that a block is what the paper says, worked out by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from trainwright.model.encoder.block import EncoderBlock, PreNormBlock, both_ways, seen_both_ways


def test_tokens_see_all_of_their_own_document():
    documents = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])
    mask = both_ways(documents, torch.float32)
    assert mask.shape == (2, 1, 5, 5)
    for row, of in enumerate(documents.tolist()):
        for query in range(5):
            for key in range(5):
                assert mask[row, 0, query, key] == (0 if of[query] == of[key] else float("-inf"))


def test_of_a_window_half_lies_on_each_side():
    documents = torch.tensor([[0, 0, 0, 0, 1, 1]])
    for window in range(1, 14):
        mask = both_ways(documents, torch.float32, window=window)
        for query in range(6):
            for key in range(6):
                near = abs(query - key) <= window // 2 and documents[0, query] == documents[0, key]
                assert mask[0, 0, query, key] == (0 if near else float("-inf"))


def test_nothing_hidden_is_no_mask():
    x = torch.zeros(2, 6, 4)
    assert seen_both_ways(None, x, window=None) is None
    assert seen_both_ways(None, x, window=10) is None
    narrow = seen_both_ways(None, x, window=9)
    assert narrow is not None and narrow.shape == (1, 1, 6, 6)
    assert (narrow[0, 0] != 0).nonzero().tolist() == [[0, 5], [5, 0]]


def test_norms_stand_before_and_the_first_attention_has_none(tiny):
    spec = tiny.spec("modernbert", heads=1, kv_heads=1, head_size=32)
    first, second = (PreNormBlock(spec, layer).double() for layer in (0, 1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    w = dict(second.named_parameters())
    first.load_state_dict({name: value for name, value in w.items() if name != "attention_norm.weight"})
    x = torch.randn(1, 5, 32, generator=generator, dtype=torch.float64)

    def norm(name, value):
        centred = value - value.mean(dim=-1, keepdim=True)
        return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"]

    def expected(normed):
        query, key, value = (normed @ w[f"attention.{name}.weight"].T for name in ("query", "key", "value"))
        mixed = torch.softmax(query @ key.transpose(1, 2) / 32**0.5, dim=-1) @ value
        y = x + mixed @ w["attention.out.weight"].T
        z = norm("ffn_norm", y)
        inner = F.gelu(z @ w["ffn.gate.weight"].T) * (z @ w["ffn.up.weight"].T)
        return y + inner @ w["ffn.down.weight"].T

    torch.testing.assert_close(second(x, None, None), expected(norm("attention_norm", x)), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(first(x, None, None), expected(x), atol=1e-12, rtol=1e-12)


def test_norms_stand_behind_the_sums(tiny):
    block = EncoderBlock(tiny.spec("bert", heads=1, kv_heads=1, head_size=32), 0).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    x = torch.randn(1, 5, 32, generator=generator, dtype=torch.float64)
    w = dict(block.named_parameters())

    def linear(name, value):
        return value @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, value):
        centred = value - value.mean(dim=-1, keepdim=True)
        scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    query, key, value = (linear(f"attention.{name}", x) for name in ("query", "key", "value"))
    mixed = torch.softmax(query @ key.transpose(1, 2) / 32**0.5, dim=-1) @ value
    y = norm("attention_norm", x + linear("attention.out", mixed))
    z = norm("ffn_norm", y + linear("ffn.down", F.gelu(linear("ffn.up", y))))
    torch.testing.assert_close(block(x, None, None), z, atol=1e-12, rtol=1e-12)
