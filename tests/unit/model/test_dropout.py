"""Dropout against whole numbers of Python, against transformers' network, and cut in every way."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
import transformers

from trainwright.core.errors import RecipeError
from trainwright.model.attention import attend
from trainwright.model.decoder import Decoder
from trainwright.model.dropout import (
    ATTENTION_OUTPUT,
    EMBEDDED,
    FFN_OUTPUT,
    WEIGHTS,
    Dropouts,
    kept,
    mixed_without,
    sample_keys,
    without,
)
from trainwright.model.families import gpt2
from trainwright.spec.parts.dropout import Dropout

WORD = 0xFFFFFFFF
ALL = Dropout(residual=0.1, embedding=0.2, attention=0.3)


def arange(*limits):
    return torch.arange(*limits)


def dropped_share(mask):
    return 1 - float(mask.double().mean())


def word(bits, other=0):
    """Two products of the mixer in numbers that never overflow."""
    bits = ((bits ^ bits >> 16) * 0x21F0AAAD) % 2**32 ^ other
    bits = (bits ^ bits >> 15) * 0x735A2D97 % 2**32
    return bits ^ bits >> 15


def stays(sample, site, rate, *places):
    low, high = sample % 2**32, (sample >> 32) % 2**32
    for place in (site, *places[:-1]):
        low = word(low ^ place)
        high = word((high + low) % 2**32)
    return word(low ^ places[-1], high) >= round(rate * 2**32)


@pytest.mark.parametrize("sizes", [(5,), (3, 7), (2, 3, 4)])
def test_a_mask_is_what_whole_numbers_give(sizes):
    samples = sample_keys(3, 4, range(3))
    assert (samples < 0).any(), "keys are 64 bits with their sign"
    places = [arange(size * 1000, size * 1000 + size) for size in sizes]
    mask = kept(samples, 11, 0.4, *places)
    for sample, *indices in itertools.product(range(3), *map(range, sizes)):
        here = [int(place[index]) for place, index in zip(places, indices, strict=True)]
        assert bool(mask[sample, *indices]) == stays(int(samples[sample]), 11, 0.4, *here)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_the_rate_says(rate):
    mask = kept(sample_keys(0, 0, range(16)), 3, rate, arange(128), arange(512))
    for dim in range(3):  # each sequence, each place and each channel alone, within six standard deviations
        shares = 1 - mask.double().mean(dim=[other for other in range(3) if other != dim])
        bound = 6 * math.sqrt(rate * (1 - rate) * len(shares) / mask.numel())
        assert (shares - rate).abs().max() < bound
    assert abs(dropped_share(mask) - rate) < 5 * math.sqrt(rate * (1 - rate) / mask.numel())


def test_neighbours_along_every_dim_have_nothing_in_common():
    def mask(seed=0, step=0, site=3):
        return kept(sample_keys(seed, step, range(16)), site, 0.5, arange(4), arange(128), arange(256))

    whole = mask()
    pairs = {"seed": (whole, mask(seed=1)), "step": (whole, mask(step=1)), "site": (whole, mask(site=4))}
    pairs |= {
        f"dim {dim} by {by}": (whole.narrow(dim, by, size - by), whole.narrow(dim, 0, size - by))
        for dim, size in enumerate(whole.shape)
        for by in (1, 2, 3, size // 2)
    }
    for name, (first, second) in pairs.items():
        agreeing = float((first == second).double().mean())
        assert abs(agreeing - 0.5) < 5 * 0.5 / math.sqrt(first.numel()), name


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_all_patterns_of_eight_neighbours_are_as_frequent(dim):
    mask = kept(sample_keys(5, 6, range(64)), 2, 0.5, arange(64), arange(256)).movedim(dim, -1)
    patterns = (mask.unflatten(-1, (-1, 8)) * 2 ** arange(8)).sum(-1)
    counts = patterns.flatten().bincount(minlength=256).double()
    square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(float(square) - 255) < 5 * math.sqrt(2 * 255), "chi squared of 255 degrees of freedom"


def test_rows_are_not_those_of_another_place_shifted():
    mask = kept(sample_keys(5, 6, range(4)), 2, 0.5, arange(64), arange(128)).flatten(0, 1)
    windows = mask.unfold(1, 48, 1).flatten(0, 1)
    assert len(windows.unique(dim=0)) == len(windows)


def test_keys_differ_by_seed_step_and_row_and_do_not_depend_on_the_cut():
    keys = torch.cat([sample_keys(seed, step, range(50)) for seed in range(4) for step in range(10)])
    assert len(keys.unique()) == 4 * 10 * 50
    assert torch.equal(sample_keys(7, 8, range(50))[20:30], sample_keys(7, 8, range(20, 30)))


def pieces(size):
    """All cuts of a range into two or three parts."""
    for count in (1, 2):
        for inner in itertools.combinations(range(1, size), count):
            yield list(itertools.pairwise((0, *inner, size)))


def test_every_cut_of_hidden_states_drops_the_same():
    x, samples = torch.randn(4, 6, 5), sample_keys(1, 2, range(4))
    whole = without(x, samples, arange(6), site=6, rate=0.4)
    for cut in pieces(4):
        parts = [without(x[a:b], samples[a:b], arange(6), site=6, rate=0.4) for a, b in cut]
        assert torch.equal(torch.cat(parts), whole)
    for cut in pieces(6):
        parts = [without(x[:, a:b], samples, arange(a, b), site=6, rate=0.4) for a, b in cut]
        assert torch.equal(torch.cat(parts, dim=1), whole)
    for cut in pieces(5):
        parts = [without(x[:, :, a:b], samples, arange(6), site=6, rate=0.4, first_channel=a) for a, b in cut]
        assert torch.equal(torch.cat(parts, dim=2), whole)


def test_every_cut_of_heads_and_queries_drops_the_same_weights():
    weights = torch.softmax(torch.randn(2, 4, 6, 6, dtype=torch.float64), dim=-1)
    value, samples = torch.randn(2, 4, 6, 3, dtype=torch.float64), sample_keys(1, 2, range(2))
    whole = mixed_without(weights, value, samples, arange(6), site=5, rate=0.4)
    for cut in pieces(4):
        parts = [
            mixed_without(weights[:, a:b], value[:, a:b], samples, arange(6), site=5, rate=0.4, first_head=a)
            for a, b in cut
        ]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-15, rtol=0)
    for cut in pieces(6):
        queries = [mixed_without(weights[:, :, a:b], value, samples, arange(a, b), site=5, rate=0.4) for a, b in cut]
        torch.testing.assert_close(torch.cat(queries, dim=2), whole, atol=1e-15, rtol=0)
        keys = [
            mixed_without(weights[..., a:b], value[:, :, a:b], samples, arange(6), site=5, rate=0.4, keys=arange(a, b))
            for a, b in cut
        ]
        torch.testing.assert_close(sum(keys), whole, atol=1e-15, rtol=0)


def test_gradients_are_those_of_what_stays():
    samples = sample_keys(1, 2, range(2))
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: without(x, samples, arange(3), site=1, rate=0.5), x)
    weights = torch.rand(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    value = torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda weights, value: mixed_without(weights, value, samples, arange(3), site=1, rate=0.5), (weights, value)
    )


TRACED = """
import torch
from trainwright.model.dropout import mixed_without, sample_keys, without

x, samples, places = torch.randn(3, 40, 70, requires_grad=True), sample_keys(1, 2, range(3)), torch.arange(40)
weights, value = torch.rand(3, 2, 40, 40, requires_grad=True), torch.randn(3, 2, 40, 8)

def dropped(x, weights):
    mixed = mixed_without(weights, value, samples, places, site=5, rate=0.4)
    return without(x * 2, samples, places, site=6, rate=0.4), mixed

def gradients(function):
    first, second = function(x, weights)
    return (first == 0, second, *torch.autograd.grad(first.sum() + second.square().sum(), (x, weights)))

traced = torch.compile(dropped, backend="aot_eager", fullgraph=True)
for eager, traced in zip(gradients(dropped), gradients(traced), strict=True):
    torch.testing.assert_close(eager, traced)
print("equal")
"""


def test_traced_code_drops_the_same():
    """In a process without run-time shape checks, which torch.compile cannot see through."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


def network(tiny, family="gpt2", *, dropout=ALL, recompute="none", dtype=torch.float64, **changes):
    shape = tiny.spec(family, dropout=dropout, **changes)
    made = Decoder(shape, dtype=dtype, recompute=recompute).to(dtype)
    made.load_state_dict(tiny.decoder(family, **changes).state_dict())
    return made


def tokens(rows=4, size=20):
    return torch.randint(0, 320, (rows, size), generator=torch.Generator().manual_seed(rows))


class Masked(torch.nn.Module):
    """Stands where transformers drops."""

    def __init__(self, mask, rate):
        super().__init__()
        self.mask, self.rate = mask, rate

    def forward(self, x):
        return x * self.mask / (1 - self.rate)


def test_transformers_drops_at_the_same_places(tiny, monkeypatch):
    ours, ids, samples = network(tiny), tokens(), sample_keys(1, 2, range(4))
    spec = ours.spec
    config = gpt2.to_config(spec)
    assert (config["resid_pdrop"], config["embd_pdrop"], config["attn_pdrop"]) == (0.1, 0.2, 0.3)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, attn_implementation="eager")).double()
    theirs.load_state_dict(gpt2.to_hf(dict(ours.named_parameters()), spec), strict=False)

    def mask(layer, site, rate, *sizes):
        return Masked(kept(samples, 4 * layer + site, rate, *map(arange, sizes)), rate)

    of_weights = iter([mask(layer, WEIGHTS, 0.3, 4, 20, 20) for layer in range(spec.layers)])
    monkeypatch.setattr(F, "dropout", lambda x, p, training: next(of_weights)(x))
    theirs.transformer.drop = mask(0, EMBEDDED, 0.2, 20, 32)
    for layer, block in enumerate(theirs.transformer.h):
        block.attn.resid_dropout = mask(layer, ATTENTION_OUTPUT, 0.1, 20, 32)
        block.mlp.dropout = mask(layer, FFN_OUTPUT, 0.1, 20, 32)
    expected = theirs.train()(ids).logits
    seen = F.linear(ours(ids, samples=samples), ours.head_weight)
    torch.testing.assert_close(seen, expected, atol=1e-10, rtol=1e-10)
    assert not torch.allclose(seen, F.linear(ours.eval()(ids), ours.head_weight))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_nothing_is_dropped_without_training_or_at_rate_zero(tiny, family):
    ids, samples = tokens(), sample_keys(1, 2, range(4))
    plain = network(tiny, family, dropout=Dropout())
    assert plain.dropouts is None
    expected = plain(ids)
    assert torch.equal(network(tiny, family).eval()(ids), expected)
    assert torch.equal(plain(ids, samples=samples), expected)
    for rates in (Dropout(residual=0.1), Dropout(embedding=0.1), Dropout(attention=0.1), Dropout(depth=0.9)):
        assert not torch.allclose(network(tiny, family, dropout=rates)(ids, samples=samples), expected)


def test_a_network_in_training_that_knows_no_samples_says_so(tiny):
    with pytest.raises(RecipeError, match=r"model\.dropout: dropout needs the keys of a batch's sequences"):
        network(tiny)(tokens())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_computing_again_gives_the_same_bits(tiny, family, dtype):
    ids, samples = tokens(), sample_keys(1, 2, range(4))
    gradients = []
    for recompute in ("none", "selective", "full"):
        made = network(tiny, family, recompute=recompute, dtype=torch.float32)
        made.compute_dtype = dtype
        made.logits(made(ids, samples=samples)).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in made.named_parameters()})
    for name, gradient in gradients[0].items():
        assert all(torch.equal(gradient, again[name]) for again in gradients[1:]), name


def test_a_part_of_a_sequence_or_of_the_width_is_dropped_as_in_the_whole():
    samples, x = sample_keys(1, 2, range(2)), torch.randn(2, 8, 6)
    ids = torch.zeros(2, 8, dtype=torch.long)
    draw = Dropouts(ALL, 2).draw(ids, samples, None)
    part = replace(Dropouts(ALL, 2), first_channel=4).draw(ids[:, 3:], samples, arange(3, 8))
    for which in ("embedded", "attention_output", "ffn_output"):
        more = () if which == "embedded" else (1,)
        whole = getattr(draw, which)(x, *more)
        assert torch.equal(getattr(part, which)(x[:, 3:, 4:], *more), whole[:, 3:, 4:])
    sites = [draw.embedded(x), *(of(x, layer) for of in (draw.attention_output, draw.ffn_output) for layer in (0, 1))]
    for first, second in itertools.combinations(sites, 2):
        assert not torch.equal(first == 0, second == 0)


def test_a_sequence_skips_a_whole_sub_layer_and_later_layers_more_often():
    samples, x = sample_keys(1, 2, range(4000)), torch.ones(4000, 3, 2, dtype=torch.float64)
    draw = Dropouts(Dropout(depth=0.5), 4).draw(x, samples, None)
    for layer, rate in enumerate((0.125, 0.25, 0.375, 0.5)):
        for which in (draw.attention_output, draw.ffn_output):
            result = which(x, layer)
            stayed = result[:, 0, 0] != 0
            assert torch.equal(result, torch.where(stayed, x[:, 0, 0] / (1 - rate), 0.0)[:, None, None].expand_as(x))
            assert dropped_share(stayed) == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 4000) ** 0.5)
    of_attention, of_ffn = draw.attention_output(x, 3)[:, 0, 0] != 0, draw.ffn_output(x, 3)[:, 0, 0] != 0
    assert dropped_share(of_attention | of_ffn) == pytest.approx(0.25, abs=0.03), "independently of each other"


def test_what_skips_has_no_gradient_and_the_rest_is_scaled():
    samples, x = sample_keys(1, 2, range(16)), torch.randn(16, 3, 2, dtype=torch.float64, requires_grad=True)
    draw = Dropouts(Dropout(depth=0.5), 1).draw(x, samples, None)
    draw.ffn_output(x, 0).sum().backward()
    rows = torch.tensor([stays(int(key), (1 << 24) + 3, 0.5, 0) for key in samples])
    assert 0 < int(rows.sum()) < 16
    assert x.grad is not None and torch.equal(x.grad, torch.where(rows, 2.0, 0.0)[:, None, None].expand_as(x).double())


def test_weights_that_are_dropped_are_taken_after_softmax_of_the_causal_scores():
    query, key, value = (torch.randn(2, 4, 5, 3, dtype=torch.float64) for _ in range(3))
    ids = torch.zeros(2, 5, dtype=torch.long)
    draw = Dropouts(Dropout(attention=0.4), 2).draw(ids, sample_keys(1, 2, range(2)), None)
    weights = torch.softmax((query @ key.mT / 3**0.5).masked_fill(torch.ones(5, 5).triu(1) > 0, -math.inf), dim=-1)
    stay = kept(draw.samples, 4 * 2 + WEIGHTS, 0.4, arange(4), arange(5), arange(5))
    expected = (weights * stay / 0.6) @ value
    torch.testing.assert_close(attend(query, key, value, None, mix=draw.mix(2)), expected)
    assert Dropouts(Dropout(residual=0.4), 2).draw(ids, draw.samples, None).mix(2) is None
