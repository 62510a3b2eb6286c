from __future__ import annotations

import codecs
import tokenize

import pytest

from trainwright.spec.sections.corpus.sources import FilesSource, SourceSection
from trainwright.stages.data.corpus.entries import RawDocument
from trainwright.stages.data.sources.files import decode_python
from trainwright.testing.contract_source import SourceContract

FILES = FilesSource(kind="files", paths=("x",))


def test_a_file_is_one_document(tmp_path, read, written):
    path = written(tmp_path / "a.txt", "héllo\n".encode())
    assert read(path, FILES) == [RawDocument("", 7, text="héllo\n")]


def test_bytes_that_are_not_utf8_are_placed(tmp_path, read, written):
    path = written(tmp_path / "a.txt", b"fine until \xff here")
    assert read(path, FILES) == [RawDocument(":byte 11", 17, problem="not UTF-8")]


@pytest.mark.parametrize(
    "data",
    [
        "x = 'é'\n".encode(),
        codecs.BOM_UTF8 + "x = 'é'\r\n".encode(),
        "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
        "#!/bin/sh\n# vim: set fileencoding=cp1252 :\n'€'\n".encode("cp1252"),
    ],
)
def test_python_is_decoded_as_python_does(tmp_path, data, read, written):
    path = written(tmp_path / "a.py", data)
    with tokenize.open(path) as stream:
        expected = stream.read()
    assert decode_python(data).replace("\r\n", "\n") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"# coding: no-such-codec\n", "unknown or contradictory source encoding"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "unknown or contradictory source encoding"),
        (b"# coding: rot13\n", "unknown or contradictory source encoding"),
        (b"a\nb\nc = '\xff'\n", "not UTF-8"),
        (b"# coding: ascii\n#\n#\n#\xe9\n", "not ascii"),
    ],
)
def test_python_that_cannot_be_decoded_is_counted(tmp_path, data, problem, read, written):
    (record,) = read(written(tmp_path / "a.py", data), SourceSection(kind="python-stdlib"))
    assert record.text is None
    assert record.problem == problem


class TestFiles(SourceContract):
    def keys(self):
        return {"kind": "files", "include": ["*.md"]}

    def write(self, folder):
        (folder / "b.md").write_text("second é")
        (folder / "a.md").write_text("first")
        (folder / "c.txt").write_text("not asked for")
        return ["first", "second é"]
