"""A docstring is a preference over its own words in another order; the same file gives the same pairs."""

from __future__ import annotations

import io
import sysconfig
import warnings

import pytest

from trainwright.spec.sections.corpus.sources import DocstringsSource
from trainwright.stages.data.chats.records import chats_of
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange
from trainwright.stages.data.sources import source_of

FILE = b'''
"""A module's own docstring is none of a function."""

class Stack(list, object):
    """A last-in, first-out container of things.

    More of it, which is left out.
    """

    @staticmethod
    async def pop(self, count: int = 1, *more):
        """Remove and return   the newest
        things of all."""

    def push(self): "\\d is no escape, but a docstring all the same"

def short(): "too few words"
def same(): "no no no no no"
'''


@pytest.fixture
def pairs():
    source = source_of(DocstringsSource(kind="python-docstrings"))
    assert source.paths == (sysconfig.get_path("stdlib"),)

    def read(data):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            part = FileRange(file=CorpusFile(source=0, name="a.py", location="a.py", size_bytes=len(data), version="1"))
            return list(source.read(io.BytesIO(data), part))

    return read


def test_each_docstring_is_preferred_over_its_words_in_another_order(pairs):
    found = pairs(FILE)
    heads, answers = [], []
    for each in found:
        chosen, rejected = chats_of(each.text)
        assert chosen[0] == rejected[0]
        heads.append(chosen[0]["content"])
        answers.append(chosen[1]["content"])
        words, others = chosen[1]["content"].split(), rejected[1]["content"].split()
        assert words != others and sorted(words) == sorted(others)
    assert heads == ["class Stack(list, object):", "def pop(self, count: int=1, *more):", "def push(self):"]
    assert answers[:2] == ["A last-in, first-out container of things.", "Remove and return the newest things of all."]
    assert [each.position for each in found] == [":4", ":11", ":15"]
    assert [each.text for each in pairs(FILE)] == [each.text for each in found]


@pytest.mark.parametrize("data", [b"print 'two'\n", b"# coding: no-such\n", b"x = '\0'\n"])
def test_what_is_no_python_is_counted(pairs, data):
    (record,) = pairs(data)
    assert (record.text, record.problem) == (None, "not Python that this version reads")
