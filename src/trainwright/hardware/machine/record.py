"""``machine.json``: the doctor's record of a machine, read by the planner."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.core.errors import DataError
from trainwright.core.frozen import dataclass
from trainwright.core.records import from_json, to_json
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.probes import Probes

FORMAT = 3
FILE = "machine.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something on this machine that will hurt, and what mends it."""

    what: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Facts, probes (None where the doctor has not measured) and findings."""

    facts: MachineFacts
    probes: Probes | None = None
    findings: tuple[Finding, ...] = ()
    format: int = FORMAT


def machine_text(machine: Machine) -> bytes:
    """Returns the record as UTF-8 JSON."""
    return json.dumps(to_json(machine), indent=1, ensure_ascii=False).encode() + b"\n"


def read_machine(path: Path) -> Machine:
    """Returns the record at ``path``.

    Raises:
        DataError: no file, no JSON, or another format.
    """
    fix = "run: trainwright doctor"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("no machine record here", where=path, fix=fix) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError("the machine record cannot be read", where=path, seen=str(error), fix=fix) from error
    seen = record.get("format") if isinstance(record, dict) else None
    if seen != FORMAT:
        raise DataError("unknown format of machine record", where=path, seen=seen, expected=str(FORMAT), fix=fix)
    return from_json(Machine, record, where=str(path))
