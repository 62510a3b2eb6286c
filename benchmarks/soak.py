"""Runs the tests that take hours and writes down what came of them.

    python benchmarks/soak.py                     # all: full product of layouts, 50 kills, 40 random layouts
    python benchmarks/soak.py --kills 5 -k kills  # what stands after the options goes to pytest

Into benchmarks/results/soak-DATE.json: each test's outcome, seconds, and what it counted. Of fewer kills, or of tests
that were chosen, into soak-DATE-part.json: that is no whole soak.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
WHOLE_KILLS = 50
NOTHING_RAN = 5
"""pytest's exit code where no test was chosen."""


def outcome(case: ET.Element) -> dict[str, Any]:
    """Returns a test's row from pytest's JUnit record."""
    failed = next((child for child in case if child.tag in {"failure", "error"}), None)
    skipped = case.find("skipped")
    row: dict[str, Any] = {
        "test": f"{case.get('classname')}::{case.get('name')}",
        "seconds": float(case.get("time", "0")),
        "outcome": "failed" if failed is not None else "skipped" if skipped is not None else "passed",
    }
    for each in case.iterfind("properties/property"):
        row[str(each.get("name"))] = each.get("value")
    if failed is not None:
        row["reason"] = str(failed.get("message", ""))[:400]
    return row


def main() -> int:
    """Run, count, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=WHOLE_KILLS, help="of ranks, at random moments (default: 50)")
    parser.add_argument("--output", type=Path, help="JSON file (default: as above)")
    arguments, for_pytest = parser.parse_known_args()
    date = datetime.now(tz=UTC).date().isoformat()
    whole = arguments.kills >= WHOLE_KILLS and not for_pytest
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.xml")
        command = [sys.executable, "-m", "pytest", "--soak", "-m", "soak", f"--kills={arguments.kills}"]
        command += ["-o", "junit_family=xunit1"]  # the one that keeps what a test counted
        code = subprocess.run([*command, f"--junitxml={record}", *for_pytest], cwd=ROOT, check=False).returncode
        if not record.is_file():  # pytest refused its arguments, and has said why
            return code
        rows = [outcome(case) for case in ET.parse(record).getroot().iter("testcase")]  # our own record
    if code == NOTHING_RAN:
        return code
    document = {
        "date": date,
        "machine": f"{os.cpu_count()} processors, {platform.machine()}",
        "torch": version("torch"),
        "kills": arguments.kills,
        "whole": whole,
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "passed": sum(row["outcome"] == "passed" for row in rows),
        "failed": sum(row["outcome"] == "failed" for row in rows),
        "tests": rows,
    }
    name = f"soak-{date}.json" if whole else f"soak-{date}-part.json"
    output = arguments.output or ROOT / "benchmarks" / "results" / name
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"soak: {document['passed']} passed, {document['failed']} failed in {document['seconds']} s: {output}")
    return code


if __name__ == "__main__":
    sys.exit(main())
