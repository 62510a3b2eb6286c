from __future__ import annotations

import gzip
import lzma

import pytest

from trainwright.stages.evaluate.baselines import compressors, ngrams, take
from trainwright.stages.evaluate.ngram import NGram, bits, stream

DOCUMENTS = [b"import os\n" * 20, "größe = 1\n".encode() * 7, b"x"]


def test_compressors_equal_their_modules():
    size = sum(map(len, DOCUMENTS))
    by_gzip, by_xz = compressors(DOCUMENTS)
    assert by_gzip.bits_per_byte == 8 * sum(len(gzip.compress(d, compresslevel=9, mtime=0)) for d in DOCUMENTS) / size
    assert by_xz.bits_per_byte == 8 * sum(len(lzma.compress(d)) for d in DOCUMENTS) / size
    assert (by_gzip.documents, by_gzip.text_bytes, by_gzip.train_bytes) == (3, size, 0)
    assert gzip.decompress(gzip.compress(DOCUMENTS[0], 9)) == DOCUMENTS[0]


def test_ngrams_code_text_and_ends_over_text_bytes():
    train, held_out = [b"import sys\n" * 30, b"y = 2\n"], [b"import os\n", b"y"]
    ((short, long), (other, _)) = ngrams(train, [held_out, [b"import"]], orders=(2, 4))
    model = NGram(stream(train), order=2)
    assert short.bits_per_byte == pytest.approx(bits(model, stream(held_out)) / 11)
    assert (short.name, long.name) == ("2-gram", "4-gram")
    assert (short.train_bytes, short.text_bytes) == (sum(map(len, train)), 11)
    assert other.text_bytes == 6


def test_ngrams_leave_out_what_the_training_text_is_too_short_for():
    assert [baseline.name for baseline in ngrams([b"ab"], [[b"ab"]], orders=(2, 8))[0]] == ["2-gram"]


def test_take_stays_within_the_limit_in_whole_documents():
    assert take(iter([b"aaaa", b"bb", b"c"]), 6) == [b"aaaa", b"bb"]
    assert take(iter([b"aaaa", b"b"]), 2) == [b"aaaa"]
    assert take(iter([]), 2) == []
