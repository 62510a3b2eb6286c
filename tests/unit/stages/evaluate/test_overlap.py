from __future__ import annotations

import random

import pytest

from trainwright.stages.evaluate import overlap
from trainwright.stages.evaluate.overlap import longest_overlap


def brute_force(completion: bytes, text: bytes) -> bytes:
    parts = (completion[a:b] for a in range(len(completion)) for b in range(a + 1, len(completion) + 1))
    return max((part for part in parts if part in text), key=len, default=b"")


@pytest.mark.parametrize("seed", range(12))
def test_equals_brute_force(seed, monkeypatch):
    monkeypatch.setattr(overlap, "_BLOCK", 64)
    rng = random.Random(seed)
    text = bytes(rng.choices(b"abc ", k=900))
    copied = text[300 : 300 + rng.choice([3, 9, 31, 32, 33, 70])]
    completion = bytes(rng.choices(b"abcd", k=20)) + copied + bytes(rng.choices(b"xabc", k=15))
    found = longest_overlap(completion, text)
    assert found.size_bytes == len(brute_force(completion, text))
    assert found.text.encode() in text
    assert found.share == found.size_bytes / len(completion)


def test_nothing_in_common():
    assert longest_overlap(b"zzz", b"abc").size_bytes == 0
    assert longest_overlap(b"", b"abc").share == 0
    assert longest_overlap(b"abc", b"").size_bytes == 0


def test_all_in_common():
    text = b"for line in stream:\n    yield line.strip()\n" * 3
    assert longest_overlap(text[4:90], text).share == 1
