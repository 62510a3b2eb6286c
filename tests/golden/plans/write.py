"""Writes the golden plans: ``python tests/golden/plans/write.py``. A file is what a command of ``commands.txt`` prints.

A change that only moves code leaves every file as it is. One that changes a prediction writes them anew, and its commit
says what changed and why. What the user measured, and prices of the user's own, are left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from trainwright.cli.main import main

HERE = Path(__file__).parent


def commands() -> dict[str, list[str]]:
    """Returns the arguments of each plan by its name."""
    lines = (HERE / "commands.txt").read_text(encoding="utf-8").splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(": ") for line in lines)}


def planned(arguments: list[str]) -> Any:
    """Returns what the command prints with ``--json``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*arguments, "--json"])
    return json.loads(printed.getvalue())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        os.environ.update(TRAINWRIGHT_HOME=empty, XDG_DATA_HOME=empty)
        for name, arguments in commands().items():
            (HERE / f"{name}.json").write_text(json.dumps(planned(arguments), indent=1) + "\n", encoding="utf-8")
