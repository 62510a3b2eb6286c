"""Gives the packaged prices their days, by the history of the repository whose lists they were read from.

    git clone --filter=blob:none https://github.com/skypilot-org/skypilot-catalog CLONE
    python benchmarks/price_dates.py CLONE

A row's day is that of the last commit, up to the one that it names, which changed its file. Rows of other sources, and
those that have a day, stay as they are.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from trainwright.hardware.prices.dates import dated

PUBLISHED = Path(__file__).parents[1] / "src" / "trainwright" / "catalog" / "prices" / "published.csv"


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
