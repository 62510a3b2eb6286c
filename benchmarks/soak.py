"""Runs the tests that take hours and writes down what came of them.

    python benchmarks/soak.py                     # all: full product of layouts, 50 kills, 40 random layouts
    python benchmarks/soak.py --kills 5 -k kills  # what stands after the options goes to pytest

Each test's outcome, seconds and what it counted are kept in build/soak as soon as it ends: the same command goes on
where an interrupted one stopped, as long as neither src nor tests changed, and repeats what failed (--fresh: all). What
has run is written into benchmarks/results/soak-DATE.json when every test is there; of fewer kills, of tests that were
chosen, or of an interrupted call, into soak-DATE-part.json: that is no whole soak.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
WHOLE_KILLS = 50
DIGITS = 12
"""Of the digest of the code, in the name of what is kept."""


class Kept:
    """A plugin of pytest: leaves out tests that passed in an earlier call, and keeps the row of each that ends."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self.path, self.chosen = path, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        lines = path.read_text().splitlines() if path.is_file() else []
        self.rows: dict[str, dict[str, Any]] = {row["test"]: row for row in map(json.loads, lines)}

    @property
    def passed(self) -> set[str]:
        """The tests that need not run again."""
        return {name for name, row in self.rows.items() if row["outcome"] == "passed"}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what passed."""
        self.chosen, passed = len(items), self.passed
        self.rows = {item.nodeid: self.rows[item.nodeid] for item in items if item.nodeid in self.rows}
        again = [item for item in items if item.nodeid in passed]
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of a test: of its call, or of what kept it from being called."""
        if report.when != "call" and report.passed:
            return
        row: dict[str, Any] = {"test": report.nodeid, "seconds": round(report.duration, 2), "outcome": report.outcome}
        row |= {"at": datetime.now(tz=UTC).isoformat(timespec="seconds"), **dict(report.user_properties)}
        if report.failed:
            row["reason"] = report.longreprtext[-400:]
        self.rows[report.nodeid] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def code() -> str:
    """Returns a digest of what is tested and of the tests."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:DIGITS]


def main() -> int:
    """Run, count, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=WHOLE_KILLS, help="of ranks, at random moments (default: 50)")
    parser.add_argument("--fresh", action="store_true", help="run again what passed in an earlier call, too")
    parser.add_argument("--output", type=Path, help="JSON file (default: as above)")
    arguments, for_pytest = parser.parse_known_args()
    kept = Kept(ROOT / "build" / "soak" / f"{code()}-{arguments.kills}.jsonl", fresh=arguments.fresh)
    os.chdir(ROOT)
    tests = [] if any((ROOT / word.partition("::")[0]).exists() for word in for_pytest) else ["tests"]
    exit_code = int(
        pytest.main(["--soak", "-m", "soak", f"--kills={arguments.kills}", "-v", *tests, *for_pytest], plugins=[kept])
    )
    outcomes = [row["outcome"] for row in kept.rows.values()]
    if not outcomes:  # pytest refused its arguments, or found no such test, and has said so
        return exit_code
    if len(outcomes) < kept.chosen:
        print(f"soak: {len(outcomes)} of {kept.chosen} tests have run; the same command goes on")
    whole = arguments.kills >= WHOLE_KILLS and not for_pytest and len(outcomes) == kept.chosen
    date = datetime.now(tz=UTC).date().isoformat()
    document = {
        "date": date,
        "code": kept.path.name.partition("-")[0],
        "machine": f"{os.cpu_count()} processors, {platform.machine()}",
        "torch": version("torch"),
        "kills": arguments.kills,
        "whole": whole,
        "of": kept.chosen,
        "seconds": round(sum(row["seconds"] for row in kept.rows.values()), 1),
        "passed": outcomes.count("passed"),
        "failed": outcomes.count("failed"),
        "tests": list(kept.rows.values()),
    }
    name = f"soak-{date}.json" if whole else f"soak-{date}-part.json"
    output = arguments.output or ROOT / "benchmarks" / "results" / name
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"soak: {document['passed']} passed, {document['failed']} failed in {document['seconds']} s: {output}")
    nothing_new = exit_code == pytest.ExitCode.NO_TESTS_COLLECTED  # all had passed
    return int(document["failed"] > 0) if nothing_new else exit_code


if __name__ == "__main__":
    sys.exit(main())
