"""A program for tests of launchers: does what its arguments say, one after the other.

``python -m trainwright.testing.job_actions say=hello sleep=0.5 exit=7``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def act(name: str, value: str) -> None:
    """Does one thing.

    Raises:
        ValueError: there is no such action.
    """
    match name:
        case "say":
            sys.stdout.buffer.write(f"{value}\n".encode())
            sys.stdout.flush()
        case "show":
            act("say", f"{value} is {os.environ[value]}")
        case "sleep":
            time.sleep(float(value))
        case "ignore":
            signal.signal(signal.Signals[value], signal.SIG_IGN)
        case "spawn":
            subprocess.run([sys.executable, "-m", "trainwright.testing.job_actions", value], check=True)
        case "exit":
            raise SystemExit(int(value))
        case _:
            raise ValueError(f"no action {name!r}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        act(*argument.split("=", 1))
