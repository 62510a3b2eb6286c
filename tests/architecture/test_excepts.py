"""An exception is handled by whoever knows what it means: nothing is swallowed."""

from __future__ import annotations

import ast

# "path::function" -> why it must catch everything.
EXCUSED = {
    "src/trainwright/cli/main.py::main": "the outermost frame: a defect of ours becomes one line",
    "src/trainwright/stages/train/saving/writing.py::_run": "a thread's error is raised by whoever waits for it",
}


def test_no_broad_except(package):
    broad = []
    for source in package:
        for function in source.functions():
            for handler in (node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)):
                name = f"{source.name}::{function.name}"
                if _is_broad(handler) and not _raises_again(handler) and name not in EXCUSED:
                    broad.append(f"{name} (line {handler.lineno})")
    assert not broad, f"catches everything and does not raise it again: {broad}"


def test_no_handler_does_nothing(package):
    silent = [
        f"{source.name}:{node.lineno}"
        for source in package
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and all(isinstance(statement, ast.Pass) for statement in node.body)
    ]
    assert not silent, f"except: pass (contextlib.suppress names what is expected): {silent}"


def test_nothing_broad_is_suppressed(package):
    broad = [
        f"{source.name}:{call.lineno}"
        for source in package
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
        if ast.unparse(call.func).endswith("suppress") and {"Exception", "BaseException"} & _names(call.args)
    ]
    assert not broad, f"suppresses everything: {broad}"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return bool({"Exception", "BaseException"} & _names(caught))


def _names(expressions: list[ast.expr]) -> set[str]:
    return {expression.id for expression in expressions if isinstance(expression, ast.Name)}


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
