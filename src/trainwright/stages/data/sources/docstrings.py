"""The source ``python-docstrings``: of each docstring of the standard library a preference over its words jumbled."""

from __future__ import annotations

import ast
import hashlib
import random
from abc import abstractmethod
from collections.abc import Iterator
from typing import BinaryIO

from trainwright.spec.sections.corpus.sources import DocstringsSource
from trainwright.stages.data.chats.records import form_of
from trainwright.stages.data.corpus.entries import FileRange, RawDocument
from trainwright.stages.data.sources.base import SectionT
from trainwright.stages.data.sources.files import PythonLibrary
from trainwright.stages.data.sources.python_syntax import Function, first_paragraph, parsed

FEWEST_WORDS, MOST_WORDS = 4, 60
"""Of a first paragraph: fewer different ones have hardly another order, more are no sentence."""

Headed = ast.ClassDef | Function


class HeadedParagraphs(PythonLibrary[SectionT]):
    """Records of the docstrings of the running Python's own library, file by file."""

    @abstractmethod
    def form(self, node: Headed, words: list[str]) -> str:
        """Returns the form of a function or class and the words of its docstring's first paragraph."""

    def read(self, stream: BinaryIO, part: FileRange) -> Iterator[RawDocument]:
        """Yields the records of one file, in order of their lines; a file that is no Python of this version is one."""
        del part
        tree = parsed(stream.read())
        if isinstance(tree, RawDocument):
            yield tree
            return
        found = [node for node in ast.walk(tree) if isinstance(node, Headed)]
        for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            words = first_paragraph(node)
            if len(set(words)) >= FEWEST_WORDS and len(words) <= MOST_WORDS:
                form = self.form(node, words)
                yield RawDocument(f":{node.lineno}", len(form.encode()), text=form)


class PythonDocstrings(HeadedParagraphs[DocstringsSource]):
    """Preferences of a docstring over its words jumbled."""

    Section = DocstringsSource

    def form(self, node: Headed, words: list[str]) -> str:
        """Returns the form of both chats."""
        return _form(head_of(node), words)


def head_of(node: Headed) -> str:
    """Returns the line that begins a function or a class, without decorators and annotations of what it returns."""
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))}):"
    return f"def {node.name}({ast.unparse(node.args)}):"


def _form(head: str, words: list[str]) -> str:
    """Returns the form of both chats; the order of the worse answer's words is a function of the better one alone."""
    answer = " ".join(words)
    dice = random.Random(hashlib.sha256(answer.encode()).digest())
    other = words
    while other == words:
        other = dice.sample(words, len(words))
    asked = {"role": "user", "content": head}
    return form_of([[asked, {"role": "assistant", "content": text}] for text in (answer, " ".join(other))])
