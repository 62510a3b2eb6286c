"""Chats from docstrings and signatures, against the library's own ``inspect``; what no chat can be made of."""

from __future__ import annotations

import ast
import importlib
import inspect
import json

import pytest

from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.files import list_files
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.python_chats import call_of, described, module_of
from trainwright.stages.data.sources.python_syntax import first_paragraph

CHATS = DataSection.model_validate({"sources": [{"kind": "python-stdlib-chats"}], "chat": {"template": "turns"}})
MODULE = '''"""What it is
for.

More of it.
"""

class Box(dict):
    """A box."""

    def __init__(self, size, *, lid=True): ...

    def open(self, /, by: str = "hand") -> None:
        """Open it."""

    @classmethod
    def empty(cls):
        """An empty one."""

    @property
    def size(self):
        """How large."""

    @staticmethod
    def count(things=()):
        """Count."""

    def _hidden(self):
        """Nobody asks."""

def untold(): ...

async def move(x, *rest, **more):
    """Move."""

def move():
    """A second one of that name."""
'''


def documents(data: bytes, name: str, read, written, tmp_path):
    path = written(tmp_path / name, data)
    return read(path, CHATS.sources[0])


def test_each_public_name_with_a_docstring_is_a_chat(tmp_path, read, written) -> None:
    found = documents(MODULE.encode(), "boxes.py", read, written, tmp_path)
    how = ["user", "How is it called?"]
    assert [json.loads(each.text) for each in found] == [
        [["user", "What is the module `boxes` for?"], ["assistant", "What it is for."]],
        [
            ["user", "What is `boxes.Box`?"],
            ["assistant", "A box."],
            how,
            ["assistant", "`boxes.Box(size, *, lid=True)`"],
        ],
        [
            ["user", "What does `boxes.Box.open` do?"],
            ["assistant", "Open it."],
            how,
            ["assistant", "`boxes.Box.open(by: str='hand')`"],
        ],
        [
            ["user", "What does `boxes.Box.empty` do?"],
            ["assistant", "An empty one."],
            how,
            ["assistant", "`boxes.Box.empty()`"],
        ],
        [["user", "What does `boxes.Box.size` do?"], ["assistant", "How large."]],
        [
            ["user", "What does `boxes.Box.count` do?"],
            ["assistant", "Count."],
            how,
            ["assistant", "`boxes.Box.count(things=())`"],
        ],
        [
            ["user", "What does `boxes.move` do?"],
            ["assistant", "Move."],
            how,
            ["assistant", "`boxes.move(x, *rest, **more)`"],
        ],
    ]
    assert [each.position for each in found[:2]] == [":1", ":7"]
    assert {each.group for each in found} == {"boxes"}
    assert [each.size_bytes for each in found] == [len(each.text.encode()) for each in found]


@pytest.mark.parametrize("name", ["textwrap", "json.encoder", "shutil", "dataclasses"])
def test_the_library_says_the_same_of_itself(name) -> None:
    module = importlib.import_module(name)
    for each in described(ast.parse(inspect.getsource(module)), name):
        thing = module
        for part in each.name.removeprefix(name).split(".")[1:]:
            thing = getattr(thing, part)
        assert each.summary == " ".join(inspect.getdoc(thing).lstrip().partition("\n\n")[0].split())
        if inspect.isfunction(thing) and each.call is not None:
            told = ast.parse(each.call, mode="eval") if "=" not in each.call and "*" not in each.call else None
            parameters = [one for one in inspect.signature(thing).parameters if one not in ("self", "cls")]
            assert told is None or [ast.unparse(argument) for argument in told.body.args] == parameters


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("json/__init__.py", "json"),
        ("json/decoder.py", "json.decoder"),
        ("_pydecimal.py", None),
        ("config-3.12/python-config.py", None),
    ],
)
def test_a_file_is_called_as_it_is_imported(path, module) -> None:
    assert module_of(path) == module


@pytest.mark.parametrize("data", [b"def f(:\n", b"x = '\xff'\n", b"# coding: no-such\n", b"a\0b"])
def test_what_is_no_python_is_counted(tmp_path, data, read, written) -> None:
    (found,) = documents(data, "broken.py", read, written, tmp_path)
    assert (found.text, found.problem) == (None, "not Python that this version reads")


def test_a_private_module_has_no_chats(tmp_path, read, written) -> None:
    assert documents(MODULE.encode(), "_boxes.py", read, written, tmp_path) == []


def test_what_has_no_docstring_says_nothing() -> None:
    tree = ast.parse("x = 1\nclass A:\n    '''  '''\n")
    assert (first_paragraph(tree), first_paragraph(tree.body[1]), call_of(tree.body[1], "a.A")) == ([], [], None)


def test_tests_of_the_library_are_left_out() -> None:
    names = [entry.name for entry in list_files(CHATS)]
    assert "json/__init__.py" in names and len(names) == len(set(names))
    assert not [name for name in names if {"test", "tests"} & set(name.split("/")[:-1])]
    assert source_of(CHATS.sources[0]).section.records == "chats"
