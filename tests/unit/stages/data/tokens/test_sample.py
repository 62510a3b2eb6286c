"""A sample is the first documents that fit, whole ones, and at least a file."""

from __future__ import annotations

import pytest

from trainwright.stages.data.parts import TERMINATOR, read_documents
from trainwright.stages.data.tokens.sample import first_texts, training_sample

TEXTS = [[b"a" * 9, b"b" * 9], [b"c" * 9, b"d" * 9]]


@pytest.fixture
def documents(tmp_path):
    paths = [tmp_path / f"{number}.docs" for number in range(len(TEXTS))]
    for path, texts in zip(paths, TEXTS, strict=True):
        path.write_bytes(b"".join(text + TERMINATOR for text in texts))
    return paths


@pytest.mark.parametrize(("limit", "expected"), [(40, "abcd"), (35, "abc"), (20, "ab"), (12, "a"), (3, "")])
def test_whole_documents_within_the_limit(documents, tmp_path, limit, expected):
    taken = training_sample(documents, limit, tmp_path)
    assert "".join(chr(text[0]) for path in taken for text in read_documents(path)) == expected


def test_the_first_texts_come_in_order(documents):
    assert first_texts(documents) == [text for texts in TEXTS for text in texts]
