"""When rows of a price list were written: the day on which their file was last changed, by its repository's history.

The packaged list names a repository, a file in it and a commit for each row; a clone of that repository knows the rest.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from trainwright.core.errors import MachineError

REPOSITORY = "skypilot-org/skypilot-catalog"


def last_changed(clone: Path, file: str, commit: str) -> str:
    """Returns the day (ISO) of the last commit up to ``commit`` that changed a file; empty where none did.

    Raises:
        MachineError: no clone with that commit in its history, or no git.
    """
    command = ["git", "-C", str(clone), "log", "-1", "--format=%cs", commit, "--", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise MachineError("no git to read a history with", where=clone, fix="install git") from error
    except subprocess.CalledProcessError as error:
        seen, expected = error.stderr.strip().partition("\n")[0], f"a clone of {REPOSITORY} with commit {commit}"
        raise MachineError("cannot read a history", where=clone, seen=seen, expected=expected) from error
    return done.stdout.strip()


def dated(rows: Iterable[Mapping[str, str]], clone: Path, *, repository: str = REPOSITORY) -> Iterator[dict[str, str]]:
    """Yields rows with their day, where they have none and are of ``repository``; others as they are.

    Raises:
        MachineError: as ``last_changed``.
    """
    day = cache(last_changed)
    for row in rows:
        home, _, file = row["source"].partition(":")
        if row["date"] or home != repository or not file:
            yield dict(row)
        else:
            yield {**row, "date": day(clone, file, row["as_of"].partition(" ")[0])}
