from __future__ import annotations

from trainwright.testing.messages import messages

SOURCE = """
from trainwright.core.errors import DataError, MachineError, RecipeErrors

class Full(MachineError):
    pass

def check(count, name, text):
    if count:
        raise DataError("{count} of {name!r} are damaged", where=name, fix="fetch {name}", count=count, name=name)
    if name:
        raise Full("no room", seen=name)
    if text:
        raise DataError(text)
    raise RecipeErrors([])
"""


def test_templates_are_collected_with_their_values(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "module.py").write_text(SOURCE, encoding="utf-8")
    damaged, full, loose = messages(tmp_path)
    assert (damaged.path, damaged.error) == ("inner/module.py", "DataError")
    assert damaged.template == "{count} of {name!r} are damaged"
    assert damaged.values == damaged.named == {"count", "name"}
    assert (full.error, full.template, full.values) == ("Full", "no room", frozenset())
    assert loose.template is None
