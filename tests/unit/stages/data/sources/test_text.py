from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.spec.sections.corpus.sources import TextSource
from trainwright.stages.data.sources import text as module
from trainwright.testing.contract_source import SourceContract


@given(
    texts=st.lists(st.text(alphabet="ab\né", max_size=6), max_size=12), separator=st.sampled_from(["\n\n", "###", "é"])
)
def test_pieces_are_those_of_split_whatever_the_chunks(tmp_path_factory, texts, separator, read, written):
    data = separator.join(texts).encode()
    path = written(tmp_path_factory.mktemp("text") / "a.txt", data)
    source = TextSource(kind="text", paths=("x",), separator=separator)
    expected = data.split(separator.encode())
    expected = expected[:-1] if not expected[-1] else expected
    for chunk in (1, 2, 3, 7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_CHUNK_BYTES", chunk)
            assert [record.text for record in read(path, source)] == [piece.decode() for piece in expected]


def test_windows_line_ends_separate_too(tmp_path, read, written):
    path = written(tmp_path / "a.txt", b"one\r\ntwo\r\n\r\nthree\r\n")
    found = read(path, TextSource(kind="text", paths=("x",)))
    assert [(r.position, r.text) for r in found] == [(", document 1", "one\r\ntwo"), (", document 2", "three\r\n")]


def test_a_broken_piece_does_not_take_its_neighbours_along(tmp_path, read, written):
    path = written(tmp_path / "a.txt", b"one\n\ntw\xffo\n\nthree")
    found = read(path, TextSource(kind="text", paths=("x",)))
    assert [r.text for r in found] == ["one", None, "three"]
    assert (found[1].position, found[1].problem) == (":byte 7", "not UTF-8")


class TestText(SourceContract):
    def keys(self):
        return {"kind": "text", "separator": "##"}

    def write(self, folder):
        (folder / "a.txt").write_text("one##two\n\nstill two##")
        (folder / "b.txt").write_text("three")
        return ["one", "two\n\nstill two", "three"]
