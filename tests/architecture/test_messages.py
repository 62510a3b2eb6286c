"""Messages of errors are templates with named values, so that they can be collected and translated."""

from __future__ import annotations

import ast

import pytest

from trainwright.testing.messages import ErrorSite, messages

# Where a message is put together when the program runs, and why.
PUT_TOGETHER = {
    "artifact/shards.py": "the reason is one of several, each written where it is seen",
    "cli/main.py": "two texts, chosen by what was typed",
    "cli/parser.py": "argparse's own message",
    "cli/plan/question.py": "what the answer asked for is about, written by each command",
    "core/config/": "a key stands before what pydantic or a validator says",
    "planner/": "the problems of a workload or a layout, joined",
    "stages/data/": "what is wrong with a file, written where it is read",
    "stages/doctor/process.py": "how the process ended",
    "stages/plan/build.py": "the problems of a workload, joined",
}


@pytest.fixture(scope="module")
def every(repository) -> list[ErrorSite]:
    return list(messages(repository / "src" / "trainwright"))


def test_a_message_is_a_template_or_its_file_says_why_not(every):
    loose = {
        f"{each.path}:{each.line}"
        for each in every
        if each.template is None and not each.path.startswith(tuple(PUT_TOGETHER))
    }
    assert not loose, f"write a template and name its values: {sorted(loose)}"


def test_every_value_is_named_in_a_text_and_every_name_has_a_value(every):
    wrong = [each for each in every if each.template is not None and each.values != each.named]
    assert not wrong


def test_an_error_is_never_made_again_from_the_text_of_another_one(repository):
    """``error.at(...)`` names another place and keeps template, values and advice."""
    root = repository / "src" / "trainwright"
    copies = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _made_from_another(node)
    ]
    assert not copies, f"write error.at(...): {copies}"


def _made_from_another(call: ast.Call) -> bool:
    """Whether a call is ``SomeError(error.what, ...)`` or ``type(error)(..., where=...)``."""
    of_its_type = (
        isinstance(call.func, ast.Call) and isinstance(call.func.func, ast.Name) and call.func.func.id == "type"
    )
    if of_its_type and any(keyword.arg == "where" for keyword in call.keywords):
        return True
    named = isinstance(call.func, ast.Name) and call.func.id.endswith("Error")
    return named and bool(call.args) and isinstance(call.args[0], ast.Attribute) and call.args[0].attr == "what"


def test_no_reason_outlives_its_message(every):
    dynamic = [each.path for each in every if each.template is None]
    assert all(any(path.startswith(prefix) for path in dynamic) for prefix in PUT_TOGETHER)


def test_most_messages_can_be_collected(every):
    assert len([each for each in every if each.template is not None]) > 0.8 * len(every) > 200
