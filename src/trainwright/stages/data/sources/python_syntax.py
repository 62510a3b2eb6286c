"""What the sources of Python's own library share: parsing a file, and the first paragraph of a docstring."""

from __future__ import annotations

import ast
import warnings

from trainwright.stages.data.corpus.entries import RawDocument
from trainwright.stages.data.sources.files import decode_python

TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
"""Folders of the library with tests: some Pythons have them, others do not."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


def parsed(data: bytes) -> ast.Module | RawDocument:
    """Returns the tree of a Python file, which is not run; of one that this Python does not read a broken record."""
    try:
        with warnings.catch_warnings():  # of escapes in old modules: they are not ours
            warnings.simplefilter("ignore")
            return ast.parse(decode_python(data))
    except (SyntaxError, LookupError, ValueError, RecursionError):
        return RawDocument("", len(data), problem="not Python that this version reads")


def first_paragraph(node: Documented) -> list[str]:
    """Returns the words of the first paragraph of a docstring; none where there is no docstring."""
    return (ast.get_docstring(node) or "").lstrip().partition("\n\n")[0].split()
