from __future__ import annotations

import pytest
import torch

from trainwright.model.cache import KVCache

CPU = torch.device("cpu")


def cached_logits(model, tokens, *, parts):
    """Logits of every position, fed in parts of these lengths."""
    cache = KVCache(model.spec, slots=3, max_tokens=64, dtype=torch.float32, device=CPU)
    logits, at = [], 0
    with torch.inference_mode():
        for length in parts:
            positions = torch.arange(at, at + length)[None]
            cache.select(torch.tensor([1]), positions)
            logits.append(model.logits(model(tokens[:, at : at + length], positions=positions, cache=cache)))
            at += length
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("parts", [[24], [1] * 24, [7, 1, 1, 10, 5]])
def test_cached_equals_uncached(tiny, family, parts):
    model = tiny.decoder(family)
    tokens = torch.randint(0, 320, (1, 24), generator=torch.Generator().manual_seed(0))
    expected = model.logits(model(tokens))
    torch.testing.assert_close(cached_logits(model, tokens, parts=parts), expected, atol=1e-5, rtol=1e-5)


def test_rows_at_different_positions_do_not_see_each_other(tiny):
    model = tiny.decoder()
    cache = KVCache(model.spec, slots=4, max_tokens=64, dtype=torch.float32, device=CPU)
    long, short = torch.randint(0, 320, (1, 20)), torch.randint(0, 320, (1, 9))
    with torch.inference_mode():
        for slot, tokens in ((2, long), (0, short)):
            positions = torch.arange(tokens.shape[1] - 1)[None]
            cache.select(torch.tensor([slot]), positions)
            model(tokens[:, :-1], positions=positions, cache=cache)
        positions = torch.tensor([[8], [19]])
        cache.select(torch.tensor([0, 2]), positions)
        last = torch.cat((short[:, -1:], long[:, -1:]))
        hidden = model(last, positions=positions, cache=cache)[:, 0]
        torch.testing.assert_close(hidden[0], model(short)[0, -1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(hidden[1], model(long)[0, -1], atol=1e-5, rtol=1e-5)


def test_a_moved_slot_goes_on_where_it_was(tiny):
    model = tiny.decoder()
    cache = KVCache(model.spec, slots=2, max_tokens=32, dtype=torch.float32, device=CPU)
    tokens = torch.randint(0, 320, (1, 11))
    with torch.inference_mode():
        cache.select(torch.tensor([1]), torch.arange(10)[None])
        model(tokens[:, :10], positions=torch.arange(10)[None], cache=cache)
        cache.move(source=1, target=0, tokens=10)
        cache.select(torch.tensor([0]), torch.tensor([[10]]))
        hidden = model(tokens[:, 10:], positions=torch.tensor([[10]]), cache=cache)
        torch.testing.assert_close(hidden[0, 0], model(tokens)[0, -1], atol=1e-5, rtol=1e-5)


def test_mask_is_left_out_only_where_nothing_is_hidden(tiny):
    cache = KVCache(tiny.spec(), slots=4, max_tokens=32, dtype=torch.float32, device=CPU)
    cache.select(torch.tensor([3]), torch.tensor([[7]]))
    assert cache.mask() is None
    cache.select(torch.tensor([0, 1]), torch.arange(5).expand(2, 5))
    assert cache.mask() is None
    cache.select(torch.tensor([0, 1]), torch.tensor([[2, 3], [0, 1]]))
    seen = cache.mask() == 0
    assert seen.tolist() == [[[[1, 1, 1, 0], [1, 1, 1, 1]]], [[[1, 0, 0, 0], [1, 1, 0, 0]]]]
