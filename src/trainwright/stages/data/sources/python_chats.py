"""The source ``python-stdlib-chats``: what the running Python's library says of itself, as questions and answers.

Files are parsed and never imported, so that no code of them runs. Each public function, class and module with a
docstring is one chat: what it does, by the docstring's first paragraph, and how it is called, by its signature. All
chats of a package are on one side of the split, so that a model is judged on packages that it was not tuned on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import PythonChatsSource
from trainwright.stages.data.chats.records import Turn, form_of
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.files import PythonLibrary
from trainwright.stages.data.sources.python_syntax import TEST_FOLDERS, Documented, Function, first_paragraph, parsed


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """Something with a docstring: its whole name, where it stands, the first paragraph, and how it is called."""

    name: str
    line: int
    summary: str
    question: str
    call: str | None = None

    def chat(self) -> list[dict[str, str]]:
        """Returns the messages of the chat about it."""
        turns: list[Turn] = [("user", self.question), ("assistant", self.summary)]
        if self.call is not None:
            turns += [("user", "How is it called?"), ("assistant", f"`{self.call}`")]
        return [{"role": role, "content": content} for role, content in turns]


class PythonStdlibChats(PythonLibrary[PythonChatsSource]):
    """Chats about the running Python's own library; its tests, and names with a leading underscore, are left out."""

    Section = PythonChatsSource
    ignored_folders = PythonLibrary.ignored_folders | TEST_FOLDERS

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the chats of one module, named by the lines that they are about; none of a private module."""
        module = module_of(part.file.name)
        if module is None:
            return
        tree = parsed(stream.read())
        if isinstance(tree, RawDocument):
            yield tree
            return
        package = module.partition(".")[0]
        for each in described(tree, module):
            form = form_of([each.chat()])
            yield RawDocument(f":{each.line}", len(form.encode()), text=form, group=package)


def module_of(path: str) -> str | None:
    """Returns the name under which a file of the library is imported; None where it is private or has no such name."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    public = all(part.isidentifier() and not part.startswith("_") for part in parts)
    return ".".join(parts) if public else None


def described(tree: ast.Module, module: str) -> Iterator[Described]:
    """Yields the module and what is public in it, in the order of the file; of several of one name the first."""
    seen = set[str]()
    for name, node in _public(tree, module):
        summary = " ".join(first_paragraph(node))
        if summary and name not in seen:
            seen.add(name)
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield Described(
                name=name, line=line, summary=summary, question=_question(node, name), call=call_of(node, name)
            )


def call_of(node: Documented, name: str) -> str | None:
    """Returns how a function, or a class with an ``__init__``, is called; None of anything else."""
    if isinstance(node, ast.ClassDef):
        makers = (item for item in node.body if isinstance(item, Function) and item.name == "__init__")
        return next((f"{name}({_arguments(item, bound=True)})" for item in makers), None)
    if isinstance(node, ast.Module) or any(_is_property(each) for each in node.decorator_list):
        return None
    return f"{name}({_arguments(node, bound=_is_bound(node))})"


def _public(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, Documented]]:
    yield name, node
    for item in node.body:
        if not isinstance(item, ast.ClassDef | Function) or item.name.startswith("_"):
            continue
        inner = f"{name}.{item.name}"
        if isinstance(item, ast.ClassDef):
            yield from _public(item, inner)
        else:
            yield inner, item


def _question(node: Documented, name: str) -> str:
    if isinstance(node, ast.Module):
        return f"What is the module `{name}` for?"
    return f"What is `{name}`?" if isinstance(node, ast.ClassDef) else f"What does `{name}` do?"


def _arguments(node: Function, *, bound: bool) -> str:
    """Returns the arguments of a call, without what the method is bound to."""
    words = ast.unparse(node.args)
    first = (*node.args.posonlyargs, *node.args.args)[:1]
    if not (bound and first):
        return words
    return words.removeprefix(ast.unparse(first[0])).removeprefix(", ").removeprefix("/, ").removeprefix("/")


def _is_bound(node: Function) -> bool:
    first = (*node.args.posonlyargs, *node.args.args)[:1]
    return bool(first) and first[0].arg in ("self", "cls")


def _is_property(decorator: ast.expr) -> bool:
    """Returns whether a decorator makes an attribute of a method."""
    words = ast.unparse(decorator)
    return words.endswith(("property", ".setter", ".deleter", ".getter"))
