"""Starts the process that measures a configuration, and reads what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from trainwright.core.errors import TrainingError
from trainwright.core.records import from_json
from trainwright.planner.evidence.ladder import Measurement

PROGRAM = "trainwright.stages.optimize.measure"


def measure(request: dict[str, Any], *, say: Callable[[int], None]) -> Measurement:
    """Returns what a process measured.

    Args:
        request: what the program reads: recipe, input folders, steps.
        say: called with the updates that are done.

    Raises:
        TrainingError: the process failed; carries the last line that it printed.
    """
    last: Any = None
    # Files without a name: a kill leaves none behind.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as asked, tempfile.TemporaryFile("w+") as errors:
        asked.write(json.dumps(request))
        asked.seek(0)
        command = [sys.executable, "-m", PROGRAM, str(os.getpid())]
        with subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=errors, text=True) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    last = json.loads(line)
                    if isinstance(last, int):
                        say(last)
            finally:
                if child.poll() is None and not isinstance(last, dict):
                    child.kill()
            code = child.wait()
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    if code != 0 or not isinstance(last, dict):
        reason = lines[-1] if lines else f"ended by signal {-code}" if code < 0 else f"exit status {code}"
        raise TrainingError("this configuration cannot be trained here", seen=reason)
    return from_json(Measurement, last, where=PROGRAM)
