"""The contract finds what a source does wrong: its tests can fail."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import pytest

from trainwright.spec.sections.corpus.sources import PathsSection
from trainwright.stages.data.corpus.entries import RawDocument
from trainwright.stages.data.sources.base import Source
from trainwright.testing.contract_source import SourceContract

counter = itertools.count()


class Whole(Source[PathsSection]):
    Section = PathsSection

    def read(self, stream, part):
        text = stream.read().decode("latin-1")
        yield RawDocument("", len(text), text=text)


class Both(Whole):
    def read(self, stream, part):
        yield RawDocument("", 0, text=stream.read().decode("latin-1"), problem="none")


class Moody(Whole):
    def read(self, stream, part):
        yield RawDocument("", 0, text=f"{next(counter)}")


class Closing(Whole):
    def read(self, stream, part):
        yield from super().read(stream, part)
        stream.close()


class Ranges(Whole):
    by_lines = True


@pytest.fixture
def contract(monkeypatch, tmp_path):
    classes = SimpleNamespace(Whole=Whole, Both=Both, Moody=Moody, Closing=Closing, Ranges=Ranges)
    monkeypatch.setitem(sys.modules, "my_sources", classes)
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    def make(name):
        keys = {"keys": lambda self: {"kind": f"my_sources:{name}"}, "write": lambda self, folder: []}
        return type("TestSource", (SourceContract,), keys)(), (tmp_path, ["one\ntwo\n"])

    return make


TESTS = {
    "Both": "test_a_document_has_a_text_or_a_problem",
    "Moody": "test_reading_again_gives_the_same",
    "Closing": "test_the_stream_is_left_to_the_stage",
    "Ranges": "test_ranges_give_each_document_once",
}


@pytest.mark.parametrize(("name", "test"), TESTS.items())
def test_what_a_source_does_wrong_is_found(contract, name, test):
    wrong, corpus = contract(name)
    with pytest.raises(AssertionError):
        getattr(wrong, test)(corpus)


@pytest.mark.parametrize("test", sorted({*TESTS.values(), "test_the_documents_are_those_that_were_written"}))
def test_what_it_does_right_is_not(contract, test):
    right, corpus = contract("Whole")
    if "ranges" in test:
        pytest.skip("this source reads whole files")
    getattr(right, test)(corpus)


def test_other_documents_than_promised_are_found(contract):
    right, (folder, _) = contract("Whole")
    with pytest.raises(AssertionError):
        right.test_the_documents_are_those_that_were_written((folder, ["something else"]))


def test_a_contract_without_a_source_cannot_be_tested():
    with pytest.raises(TypeError, match=r"keys.*write"):
        type("Nothing", (SourceContract,), {})()
