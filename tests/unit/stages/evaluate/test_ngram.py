from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from trainwright.stages.evaluate import ngram
from trainwright.stages.evaluate.ngram import END, NGram, bits, stream


def reference(text: bytes, order: int):
    """Interpolated Kneser-Ney straight from its definition, with dictionaries."""
    counts = {order: Counter(text[i : i + order] for i in range(len(text) - order + 1))}
    for length in range(order - 1, 0, -1):
        counts[length] = Counter(gram[1:] for gram in counts[length + 1])
    discounts, totals, types = {}, defaultdict(int), defaultdict(int)
    for table in counts.values():
        for gram, count in table.items():
            totals[gram[:-1], len(gram)] += count
            types[gram[:-1], len(gram)] += 1
    for length, table in counts.items():
        once, twice = (sum(c == n for c in table.values()) for n in (1, 2))
        discounts[length] = (once + 1) / (once + 2 * twice + 2)

    def probability(history: bytes, symbol: int, length: int) -> float:
        if length == 0:
            return 1 / 256
        context = history[len(history) - length + 1 :]
        if len(context) < length - 1 or not totals[context, length]:
            return probability(history, symbol, length - 1)
        total = totals[context, length]
        count = counts[length][context + bytes([symbol])]
        passed_on = discounts[length] * types[context, length] / total
        return max(count - discounts[length], 0) / total + passed_on * probability(history, symbol, length - 1)

    return probability


def test_hand_computation():
    # "abab": a twice, b twice; bigrams ab twice, ba once.
    model = NGram(b"abab", order=2)
    # Order 1 counts distinct predecessors: a after b, b after a, so one each of two; n1 = 2, n2 = 0: D = 3/4.
    unigram_a = (1 - 0.75) / 2 + 0.75 * 2 / 2 / 256
    # Order 2: n1 = 1 (ba), n2 = 1 (ab): D = 2/5; after b comes only a, once.
    after_b = (1 - 0.4) / 1 + 0.4 * 1 / 1 * unigram_a
    # After x nothing was seen: order 1 decides.
    assert model.probabilities(b"ba") == pytest.approx([after_b])
    assert model.probabilities(b"xa") == pytest.approx([unigram_a])


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_equals_the_definition(order):
    rng = np.random.default_rng(order)
    train = bytes(rng.choice(np.frombuffer(b"abcd\n", np.uint8), 400))
    text = bytes(rng.choice(np.frombuffer(b"abcde\n", np.uint8), 90))
    probability = reference(train, order)
    expected = [probability(text[max(0, i - order + 1) : i], text[i], order) for i in range(1, len(text))]
    assert NGram(train, order=order).probabilities(text) == pytest.approx(expected, rel=1e-12)


def test_probabilities_sum_to_one():
    model = NGram(stream([b"the cat sat on the mat", b"the dog sat"]), order=4)
    for history in (b"the", b"q", b"sat", bytes([END])):
        total = sum(model.probabilities(history + bytes([symbol]))[-1] for symbol in range(256))
        assert total == pytest.approx(1)


def test_blocks_do_not_show(monkeypatch):
    text = b"abcabcabdabcaabbccabdc" * 5
    whole = NGram(text, order=5).probabilities(text)
    monkeypatch.setattr(ngram, "_BLOCK", 7)
    assert NGram(text, order=5).probabilities(text) == pytest.approx(whole)


def test_bits_of_the_uniform():
    model = NGram(bytes(range(256)) * 2, order=1)
    assert bits(model, b"hello") == pytest.approx(4 * 8)


def test_longer_contexts_predict_repetition_better():
    text = stream([b"def f(x):\n    return x + 1\n"] * 40)
    costs = [bits(NGram(text, order=order), text) for order in (1, 2, 4, 8)]
    assert costs == sorted(costs, reverse=True)
    assert math.isfinite(costs[0])


def test_stream_codes_each_documents_end():
    assert stream([b"a", b"b"]) == bytes([END]) + b"a" + bytes([END]) + b"b" + bytes([END])
