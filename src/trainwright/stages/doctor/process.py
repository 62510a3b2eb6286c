"""Starts the measuring process and reads what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.core.errors import MachineError
from trainwright.core.records import from_json
from trainwright.hardware.machine.probes import Probes

CHILD = "trainwright.stages.doctor.child"
BUDGET_S = 300.0


def measure(*, threads: int, folder: Path, thorough: bool, say: Callable[[str], None]) -> Probes:
    """Everything that is measured on this machine.

    Args:
        threads: that computations use.
        folder: where the disk is measured; made where it is absent.
        thorough: measure everything; else what a plan needs, in a few seconds.
        say: called with the name of each measurement when it begins.

    Raises:
        MachineError: torch cannot compute here; carries the last line that the process printed.
    """
    what, fix = (
        "this machine cannot be measured",
        "check the installation: python -c 'import torch; print(torch.rand(2, 2))'",
    )
    effort = "thorough" if thorough else "quick"
    begin = time.monotonic()
    last: Any = None
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", CHILD, str(threads), str(folder), effort],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                last = json.loads(line)
                if isinstance(last, str):
                    say(last)
                if time.monotonic() - begin > BUDGET_S:
                    raise MachineError(what, seen=f"not done after {BUDGET_S:.0f} s, at {last}", fix=fix)
        finally:
            if child.poll() is None and not isinstance(last, dict):
                child.kill()
        code = child.wait()
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    if code != 0 or not isinstance(last, dict):
        reason = lines[-1] if lines else f"exit status {code}"
        raise MachineError(what, seen=f"{last}: {reason}" if isinstance(last, str) else reason, fix=fix)
    return from_json(Probes, last, where=CHILD)
