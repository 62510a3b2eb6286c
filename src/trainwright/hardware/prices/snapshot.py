"""Files of price lists: the packaged one, and those that ``trainwright catalog update`` has fetched for this user.

Fetched lists live under the user's data folder (``XDG_DATA_HOME``, else ``~/.local/share``), one CSV per cloud, and
beside them ``own.csv``, prices added by hand. A price there stands for packaged ones of its device, cloud, kind and
region.
"""

from __future__ import annotations

import csv
import io
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from trainwright.core.errors import MachineError
from trainwright.hardware.prices.skypilot import COLUMNS

OWN = "own"
"""The list of prices that were added by hand."""
_PACKAGED = files("trainwright") / "catalog" / "prices"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Rows of one price list; ``recorded`` is its day (ISO), ``path`` None where it came with the package."""

    name: str
    recorded: str
    rows: tuple[Mapping[str, str], ...]
    path: Path | None = None


def folder() -> Path:
    """Returns the folder of this user's price lists; it need not exist."""
    base = os.environ.get("XDG_DATA_HOME")
    # The XDG specification has relative paths ignored.
    data = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return data / "trainwright" / "prices"


def packaged() -> tuple[Snapshot, ...]:
    """Returns the price lists that came with this version."""
    snapshots = []
    for entry in sorted(_PACKAGED.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".toml"):
            name = entry.name.removesuffix(".toml")
            about = tomllib.loads(entry.read_text(encoding="utf-8"))
            rows = _rows((_PACKAGED / f"{name}.csv").read_text(encoding="utf-8"))
            snapshots.append(Snapshot(name=name, recorded=about["recorded"], rows=rows))
    return tuple(snapshots)


def fetched() -> tuple[Snapshot, ...]:
    """Returns the price lists in this user's folder.

    Raises:
        MachineError: one cannot be read.
    """
    snapshots = []
    for path in fetched_files():
        try:
            rows = _rows(path.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise MachineError(
                "cannot read a price list", where=path, seen=error.strerror, fix="delete it, or make it readable"
            ) from error
        dates = [date for row in rows if (date := row.get("as_of"))]
        snapshots.append(Snapshot(name=path.stem, recorded=max(dates, default=""), rows=rows, path=path))
    return tuple(snapshots)


def fetched_files() -> tuple[Path, ...]:
    """Returns the files in this user's folder, by name."""
    here = folder()
    return tuple(sorted(here.glob("*.csv"))) if here.is_dir() else ()


def write(name: str, rows: Iterable[Mapping[str, str]]) -> Path:
    """Put a cloud's rows into this user's folder, in place of older ones, all or nothing.

    Raises:
        MachineError: the folder cannot be written.
    """
    path = folder() / f"{name}.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    half = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(text.getvalue(), encoding="utf-8")
        half.replace(path)
    except OSError as error:
        raise MachineError(
            "cannot write a price list", where=path, seen=error.strerror, fix="set XDG_DATA_HOME to a writable folder"
        ) from error
    return path


def add(row: Mapping[str, str]) -> Path:
    """Put a price into the user's own list, in place of one of the same device, provider, kind and region.

    Raises:
        MachineError: the folder cannot be read or written.
    """
    same = ("device", "provider", "kind", "region")
    kept = [each for snapshot in fetched() if snapshot.name == OWN for each in snapshot.rows]
    others = [each for each in kept if any(each[name] != row.get(name, "") for name in same)]
    return write(OWN, [*others, {column: row.get(column, "") for column in COLUMNS}])


def _rows(text: str) -> tuple[Mapping[str, str], ...]:
    """Rows with every column; what a damaged file lacks is empty."""
    return tuple({column: row.get(column) or "" for column in COLUMNS} for row in csv.DictReader(io.StringIO(text)))
