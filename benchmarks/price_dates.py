"""Gives the packaged prices their days, by the history of the repository whose lists they were read from.

    git clone --filter=blob:none https://github.com/skypilot-org/skypilot-catalog CLONE
    python benchmarks/price_dates.py CLONE

A row's day is that of the last commit, up to the one that it names, which changed its file. Rows of other sources, and
those that have a day, stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from trainwright.core.errors import MachineError

PUBLISHED = Path(__file__).parents[1] / "src" / "trainwright" / "catalog" / "prices" / "published.csv"
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


def main() -> None:
    """Read the list, date its rows, and write it in place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="of the repository, with its history")
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    changed = list(dated(rows, parser.parse_args().clone))
    with PUBLISHED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(changed)
    found = sum(bool(new["date"]) and not old["date"] for old, new in zip(rows, changed, strict=True))
    print(f"{found} rows dated; {sum(not row['date'] for row in changed)} of {len(rows)} are of an unknown day")


if __name__ == "__main__":
    main()
