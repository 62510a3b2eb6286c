"""Every decoder that transformers ships, against transformers: the same weights compute the same, both ways.

A family is in these tests as soon as it is in ``FAMILIES``; its cases stand in ``fixtures/reference_models.py`` and
``fixtures/family_parity.py``.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import transformers

from fixtures.family_parity import CASES, EAGER, exactly, family_of, our_gradients, pair, shape, their_gradients
from fixtures.reference_models import counted
from trainwright.artifact.model_folder import INDEX, read_shape
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.cache import KVCache
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.parameters import total_parameters


def close(found, expected, *, within):
    """Every element is as near as ``within`` times the largest one, or ``within`` itself."""
    bound = within * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, atol=bound, rtol=0)


def compare(both, *, within):
    logits, loss, grads = their_gradients(both)
    our_logits, our_loss, our_grads = our_gradients(both)
    close(our_logits, logits, within=within)
    close(our_loss, loss, within=within)
    assert our_grads.keys() == grads.keys()
    for name, grad in grads.items():
        close(our_grads[name], grad, within=within)


@pytest.fixture(scope="module", params=CASES)
def both(request, tmp_path_factory):
    """Both networks of a case in float32; ours was read from shards that transformers wrote."""
    folder = tmp_path_factory.mktemp(request.param)
    made = pair(request.param, folder, shard="40KB")
    assert (folder / INDEX).exists()
    return made


def test_logits_and_all_gradients_are_those_of_transformers(both):
    compare(both, within=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_and_to_the_last_digits_where_the_reference_keeps_them(tmp_path, name):
    with exactly(family_of(name)):
        compare(pair(name, tmp_path, torch.float64), within=1e-9)


def test_written_and_read_by_transformers_it_is_the_same(tmp_path, both):
    weights = dict(both.ours.stored())
    hf.write(tmp_path, both.spec, weights, dtype=torch.float32, extra={})
    assert read_shape(tmp_path) == both.spec
    again = hf.read_weights(tmp_path, both.spec)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[key], weight) for key, weight in weights.items())
    way = both.theirs.config._attn_implementation  # noqa: SLF001  # it has no other name
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **EAGER | {"attn_implementation": way}).eval()
    with torch.no_grad():
        assert torch.equal(read(both.tokens).logits, both.theirs(both.tokens).logits)


def test_with_the_cache_it_computes_what_it_does_without(both):
    ours, tokens = both.ours.eval(), both.tokens
    cache = KVCache(both.spec, slots=2, max_tokens=tokens.shape[1], dtype=torch.float32, device=torch.device("cpu"))
    cuts, parts = [0, 20, 29, *range(30, tokens.shape[1] + 1)], []
    with torch.no_grad():
        for start, stop in itertools.pairwise(cuts):
            positions = torch.arange(start, stop).expand(2, -1)
            cache.select(torch.arange(2), positions)
            parts.append(ours(tokens[:, start:stop], positions=positions, cache=cache))
        close(ours.logits(torch.cat(parts, dim=1)), ours.logits(ours(tokens)), within=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_planner_counts_its_parameters_and_operations(name):
    spec = shape(name)
    with torch.device("meta"):
        network = build_network(spec)
    assert total_parameters(spec) == sum(parameter.numel() for parameter in network.parameters())
    tokens = torch.zeros(2, 64, dtype=torch.long, device="meta")
    expected = count_flops(spec, sequences=2, sequence_tokens=64)
    forward, logits = counted(lambda: network.logits(network(tokens)))
    backward, _ = counted(lambda: logits.sum().backward())
    assert (forward, forward + backward) == (expected.forward, expected.training)
