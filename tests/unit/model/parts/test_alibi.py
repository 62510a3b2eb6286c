"""ALiBi's biases, against transformers' and against what its paper says of them."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from trainwright.model.parts.alibi import Alibi, slopes


def alibi(heads: int) -> Alibi:
    return Alibi(slopes(heads), range(heads))


def test_slopes_of_eight_heads_are_the_papers():
    assert slopes(8) == tuple(2.0**-n for n in range(1, 9))


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 40, 71, 112])
def test_slopes_are_those_of_bloom_and_mpt(heads):
    ours = torch.tensor(slopes(heads))
    bloom = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    torch.testing.assert_close(ours, bloom)
    torch.testing.assert_close(ours, mpt)


def test_without_a_mask_a_token_sees_itself_and_earlier_ones_by_distance():
    mask = alibi(8).mask(None, torch.arange(5)[None], keys=5, dtype=torch.float64)
    assert mask.shape == (1, 8, 5, 5)
    assert mask.dtype == torch.float64
    for head in range(8):
        for query in range(5):
            for key in range(5):
                expected = -(2.0 ** -(head + 1)) * (query - key) if key <= query else float("-inf")
                assert mask[0, head, query, key] == expected


def test_what_is_hidden_stays_hidden_and_the_rest_is_added():
    seen = torch.zeros(2, 1, 3, 7).masked_fill_(torch.rand(2, 1, 3, 7) < 0.3, float("-inf"))
    queries = torch.tensor([[4, 5, 6], [0, 2, 6]])
    mask = alibi(4).mask(seen, queries, keys=7, dtype=torch.float32)
    distance = (queries[:, None, :, None] - torch.arange(7)) * torch.tensor(slopes(4))[:, None, None]
    assert torch.equal(mask, seen - distance)


def test_some_heads_have_their_own_slopes():
    whole = alibi(6)
    assert whole.part(range(2, 4)).part(range(1, 2)) == Alibi(slopes(6), range(3, 4))
    places = torch.arange(4)[None]
    every = whole.mask(None, places, keys=4, dtype=torch.float32)
    some = whole.part(range(2, 5)).mask(None, places, keys=4, dtype=torch.float32)
    assert torch.equal(some, every[:, 2:5])


def test_a_bias_in_sixteen_bits_is_rounded_once():
    mask = alibi(12).mask(None, torch.arange(700)[None], keys=700, dtype=torch.bfloat16)
    exact = alibi(12).mask(None, torch.arange(700)[None], keys=700, dtype=torch.float64)
    assert torch.equal(mask, exact.to(torch.bfloat16))
