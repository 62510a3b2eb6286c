from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.attention import (
    Attention,
    attend,
    document_ids,
    document_mask,
    document_positions,
)
from trainwright.planner.counts.pieces import WHOLE_SCORES_TOKENS


def brute(query, key, value, visible):
    """Softmax attention, a head and a query at a time; a group of query heads shares a key head."""
    batch, heads, seq, size = query.shape
    group = heads // key.shape[1]
    out = torch.empty_like(query)
    for b in range(batch):
        for h in range(heads):
            for q in range(seq):
                keys = [k for k in range(key.shape[2]) if visible(b, q, k)]
                scores = torch.tensor([float(query[b, h, q] @ key[b, h // group, k]) for k in keys]) / math.sqrt(size)
                out[b, h, q] = scores.softmax(0) @ value[b, h // group, keys]
    return out


@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kernel", ["auto", "math", "sdpa"])
def test_attention_is_its_formula(tiny, kernel, kv_heads, masked, with_grad):
    spec = tiny.spec(kv_heads=kv_heads)
    layer = Attention(spec, 0)
    layer.kernel = kernel
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    x = torch.randn(2, 7, 32, generator=generator)
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0] * 7])

    def split(y, n):
        return y.view(2, 7, n, 8).transpose(1, 2)

    with torch.no_grad():
        parts = split(layer.query(x), 4), split(layer.key(x), kv_heads), split(layer.value(x), kv_heads)
        mixed = brute(*parts, lambda b, q, k: k <= q and (not masked or documents[b, q] == documents[b, k]))
        expected = layer.out(mixed.transpose(1, 2).reshape(2, 7, 32))
    with torch.set_grad_enabled(with_grad):
        mask = document_mask(documents, x.dtype) if masked else None
        found = layer(x, rotary=None, mask=mask, cache=None)
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-4)


def test_document_mask_is_causal_within_documents():
    assert document_mask(torch.tensor([[4, 4, 9]]), torch.bfloat16)[0, 0].tolist() == [
        [0, -math.inf, -math.inf],
        [0, 0, -math.inf],
        [-math.inf, -math.inf, 0],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [48, WHOLE_SCORES_TOKENS + 16])
@pytest.mark.parametrize("masked", [False, True])
def test_what_is_hidden_changes_no_bit(masked, tokens, dtype):
    """Results and gradients are those of torch with a Boolean mask, or of scores that are cut out of the matrix."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 3, tokens, 16, generator=generator).to(dtype) for _ in range(3)]
    documents = torch.arange(tokens).div(7, rounding_mode="floor").expand(2, -1)
    visible = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if masked:
        visible = (visible & (documents[:, :, None] == documents[:, None, :])).unsqueeze(1)

    def plain(query, key, value, mask):
        if tokens > WHOLE_SCORES_TOKENS:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=visible if masked else None, is_causal=not masked
            )
        scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1))
        return torch.matmul(torch.softmax(scores.masked_fill(~visible, -math.inf), dim=-1), value)

    results = []
    for function in (attend, plain):
        leaves = [each.clone().requires_grad_() for each in inputs]
        mixed = function(*leaves, document_mask(documents, dtype) if masked else None)
        results.append((mixed, *torch.autograd.grad(mixed.float().square().sum(), leaves)))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


def test_documents_are_numbered_and_their_positions_counted():
    tokens = torch.tensor([[5, 6, 0, 7, 0, 0, 8, 9], [0, 1, 2, 3, 4, 5, 6, 7]])
    ids = document_ids(tokens, 0)
    same = (ids[:, :, None] == ids[:, None, :])[0]
    groups = {tuple(torch.nonzero(row).flatten().tolist()) for row in same}
    assert groups == {(0, 1), (2, 3), (4,), (5, 6, 7)}  # the end-of-text token opens the next document
    assert document_positions(ids).tolist() == [[0, 1, 0, 1, 0, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7]]
