"""All messages of a package's errors, read from its source: for translators, and for the test that keeps them whole."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.core import errors
from trainwright.core.errors import TrainwrightError, placeholders

PARTS = {"where", "field", "seen", "expected", "fix"}
"""Keywords of an error that are no values of its message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorSite:
    """One place that makes an error.

    Attributes:
        path: the file, relative to the package.
        line: the line of the call.
        error: the class of the error.
        template: the message, None where it is put together when the program runs.
        values: the names of the values that are handed over.
        named: the names that the message, ``expected`` and ``fix`` hold in braces.
    """

    path: str
    line: int
    error: str
    template: str | None
    values: frozenset[str]
    named: frozenset[str]


def messages(package: Path) -> Iterator[ErrorSite]:
    """Yields every message below a folder, in the order of files and lines."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    names = _error_names(trees.values())
    for path, tree in trees.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda each: each.lineno):
            if isinstance(call.func, ast.Name) and call.func.id in names and call.args:
                yield _message(path.relative_to(package).as_posix(), call, call.func.id)


def _error_names(trees: Iterable[ast.Module]) -> set[str]:
    """Returns the classes of ``core.errors`` that take a template, and those that a module makes from them."""
    names = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, TrainwrightError)
        and value.__init__ is TrainwrightError.__init__
    }
    for tree in trees:
        names |= {node.name for node in tree.body if isinstance(node, ast.ClassDef) and _takes_a_template(node, names)}
    return names


def _takes_a_template(node: ast.ClassDef, names: set[str]) -> bool:
    makes_its_own = any(isinstance(entry, ast.FunctionDef) and entry.name == "__init__" for entry in node.body)
    return not makes_its_own and any(isinstance(base, ast.Name) and base.id in names for base in node.bases)


def _message(path: str, call: ast.Call, error: str) -> ErrorSite:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    texts = (call.args[0], keywords.get("expected"), keywords.get("fix"))
    return ErrorSite(
        path=path,
        line=call.lineno,
        error=error,
        template=_text(call.args[0]),
        values=frozenset(keywords.keys() - PARTS),
        named=frozenset().union(*(placeholders(_text(text) or "") for text in texts)),
    )


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
