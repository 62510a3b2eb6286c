"""Records of texts that belong together, and why some are none."""

from __future__ import annotations

import io

import pytest

from trainwright.spec.sections.corpus.pairs import DocstringPairsSource, PairsSource
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.words.records import words_of

HARD = {"negative_key": "not", "negatives": 2}


@pytest.mark.parametrize(
    ("keys", "record", "expected"),
    [
        ({}, {"anchor": "a", "positive": "b", "not": "c"}, ["a", "b"]),
        ({"anchor_key": "q", "positive_key": "p"}, {"q": "a", "p": "b"}, ["a", "b"]),
        (HARD, {"anchor": "a", "positive": "b", "not": ["c", "d", "e"]}, ["a", "b", "c", "d"]),
        ({**HARD, "negatives": 1}, {"anchor": "a", "positive": "b", "not": "c"}, ["a", "b", "c"]),
        (HARD, {"anchor": "a", "positive": "b", "not": "c"}, "too few negatives"),
        (HARD, {"anchor": "a", "positive": "b"}, "too few negatives"),
        (HARD, {"anchor": "a", "positive": "b", "not": ["c", "b"]}, "a negative is a text of the pair"),
        ({}, {"anchor": "a"}, "no key 'positive'"),
        ({}, {"positive": "a"}, "no key 'anchor'"),
        ({}, {"anchor": "a", "positive": 3}, "'positive' is not a text"),
        ({}, {"anchor": " ", "positive": "b"}, "an empty text"),
        ({}, {"anchor": "a", "positive": "a"}, "both texts are the same"),
    ],
)
def test_texts_of_a_record_and_why_it_is_none(keys, record, expected) -> None:
    source = source_of(PairsSource(kind="pairs", paths=("x",), **keys))
    assert set(source.columns) >= {source.section.anchor_key, source.section.positive_key}
    document = source.document(record, ":1", 9)
    assert (document.problem if document.text is None else words_of(document.text)) == expected


def test_a_docstring_belongs_to_the_head_of_its_function() -> None:
    data = b'def pop(self, n: int = 1):\n    """Remove the newest\n    of all things.\n\n    More."""\n'
    source = source_of(DocstringPairsSource(kind="python-docstring-pairs"))
    part = FileRange(file=CorpusFile(source=0, name="a.py", location="a.py", size_bytes=len(data), version="1"))
    (document,) = source.read(io.BytesIO(data), part)
    assert (document.position, words_of(document.text)) == (
        ":1",
        ["Remove the newest of all things.", "def pop(self, n: int=1):"],
    )
