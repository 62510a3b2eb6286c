"""A source from outside the project: found, validated, listed, read and counted like ours."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from trainwright.core.errors import DataError
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.base import Source, decoded
from trainwright.testing.contract_source import SourceContract

PLUG_IN = """
from pydantic import Field
from trainwright.spec.sections.corpus.sources import PathsSection
from trainwright.stages.data.corpus.entries import RawDocument
from trainwright.stages.data.sources.base import Source, decoded

class MailSection(PathsSection):
    subject: str | None = Field(None, description="messages of this subject alone")

class Mail(Source[MailSection]):
    Section = MailSection

    @property
    def patterns(self):
        return ("*.mbox",)

    def read(self, stream, part):
        for number, message in enumerate(stream.read().split(b"From ")[1:]):
            head, _, body = message.partition(b"\\n\\n")
            subject = head.partition(b"Subject: ")[2].decode("ascii", "replace")
            if subject == "boom":
                raise KeyError("boom")
            if self.section.subject in (None, subject):
                yield decoded(body, f", message {number}")

nothing = 3
"""


@pytest.fixture(autouse=True)
def plug_in(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("plug_in")
    (folder / "my_mail.py").write_text(PLUG_IN)
    (folder / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(folder))
    yield
    __import__("sys").modules.pop("my_mail", None)


def write_mail(folder):
    (folder / "a.mbox").write_text("From a\nSubject: hello\n\none bodyFrom b\nSubject: other\n\nanother body")
    (folder / "notes.txt").write_text("no mail")


class TestMail(SourceContract):
    def keys(self):
        return {"kind": "my_mail:Mail"}

    def write(self, folder):
        write_mail(folder)
        return ["one body", "another body"]


def test_a_recipe_names_a_source_from_outside(prepare, section, tmp_path):
    folder = tmp_path / "mail"
    folder.mkdir()
    write_mail(folder)
    everything = prepare(section({"kind": "my_mail:Mail", "paths": [str(folder)]}), tmp_path / "all")
    assert everything.result.summary["documents"] == 2
    record = json.loads((everything.out / "report.json").read_text())["sources"][0]
    assert record["source"] == f"my_mail:Mail: {folder}"
    chosen = prepare(section({"kind": "my_mail:Mail", "paths": [str(folder)], "subject": "other"}), tmp_path / "one")
    assert chosen.result.summary["documents"] == 1


def test_its_keys_are_checked_by_its_own_section(section):
    with pytest.raises(ValidationError) as error:
        section({"kind": "my_mail:Mail", "paths": ["a"], "subjekt": "x"}, {"kind": "my_mail:Mail"})
    assert [(item["type"], item["loc"]) for item in error.value.errors()][:2] == [
        ("extra_forbidden", ("sources", 0, "subjekt")),
        ("missing", ("sources", 1, "paths")),
    ]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("my_mail:nothing", "this is no source"),
        ("my_mail:Male", "cannot find source"),
        ("no_such_module:X", "cannot import source"),
        ("my_broken:X", "importing this source fails .*ZeroDivisionError: division by zero"),
        ("not a:reference", "Input should be 'python-stdlib', "),
    ],
)
def test_what_is_no_source_is_one_line(section, kind, line):
    with pytest.raises(ValidationError, match=line):
        section({"kind": kind, "paths": ["a"]})


def test_what_it_raises_names_it(prepare, section, tmp_path):
    (tmp_path / "a.mbox").write_text("From a\nSubject: boom\n\nbody")
    line = r"a.mbox: the plug-in my_mail:Mail failed \(seen KeyError: 'boom'\); mend it; --debug shows"
    for workers in (1, 2):
        rules = section({"kind": "my_mail:Mail", "paths": [str(tmp_path)]}, exec={"workers": workers})
        with pytest.raises(DataError, match=line):
            prepare(rules, tmp_path / f"out{workers}")


def test_each_kind_is_read_by_the_class_that_has_its_keys():
    for kind in ("python-stdlib", "files", "text", "jsonl", "parquet"):
        keys = {} if kind == "python-stdlib" else {"paths": ["a"]}
        (section,) = DataSection.model_validate({"sources": [{"kind": kind} | keys]}).sources
        source = source_of(section)
        assert isinstance(source, Source)
        assert type(section) is source.Section


def test_bytes_that_are_not_utf8_are_placed():
    assert decoded(b"ab\xff", ":1", 10).position == ":byte 12"
    assert decoded(b"ab", ":1").text == "ab"
