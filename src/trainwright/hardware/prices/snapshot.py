"""Files of price lists: the packaged one, and those that ``trainwright catalog update`` has fetched for this user.

Fetched lists live under the user's data folder (``XDG_DATA_HOME``, else ``~/.local/share``), one CSV per cloud, and
beside them ``own.csv``, prices added by hand. A price there stands for packaged ones of its device, cloud, kind and
region. What a person wrote is never written over unless it could be read whole: a list that is none is refused.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwright.core.errors import DataError, MachineError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import regular
from trainwright.hardware.catalogue.tables import CATALOG
from trainwright.hardware.prices.own import checked_row, refuse_twins
from trainwright.hardware.prices.skypilot import COLUMNS
from trainwright.spec.device import Price

OWN = "own"
"""The list of prices that were added by hand."""
NEEDED = ("device", "provider", "kind", "usd_per_device_hour")
"""Columns without which a list has no prices."""
_PACKAGED = CATALOG / "prices"
_FIRST: Mapping[str, str] = {"skypilot-org/skypilot-catalog:catalogs/v9/": "2026-07-09"}
"""When lists of a schema were proposed (skypilot-org/skypilot-catalog pull request 185)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Rows of one price list; ``recorded`` is its day (ISO), ``path`` None where it came with the package."""

    name: str
    recorded: str
    rows: tuple[Mapping[str, str], ...]
    path: Path | None = None

    @property
    def oldest(self) -> str:
        """Returns the day of the oldest price whose day is known; empty: none is."""
        return min((day for row in self.rows if (day := day_of(row))), default="")

    @property
    def undated(self) -> int:
        """Returns how many prices nobody knows the day of."""
        return sum(not day_of(row) for row in self.rows)


def day_of(row: Mapping[str, str]) -> str:
    """Returns the day (ISO) on which a price was so; empty where nobody knows: a commit says not when it was read."""
    found = re.search(r"\d{4}-\d{2}-\d{2}", row.get("as_of", ""))
    return row.get("date") or ("" if found is None else found[0])


def not_before(price: Price) -> str:
    """Returns the day (ISO) that a price is not older than, where its own is not known; empty where that is not."""
    return "" if price.date else next((day for list_, day in _FIRST.items() if price.source.startswith(list_)), "")


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
            rows = _rows((_PACKAGED / f"{name}.csv").read_bytes(), name)
            snapshots.append(Snapshot(name=name, recorded=about["recorded"], rows=rows))
    return tuple(snapshots)


def fetched() -> tuple[Snapshot, ...]:
    """Returns the price lists in this user's folder.

    Raises:
        MachineError: one cannot be read.
        DataError: one is no price list, or a price in the user's own cannot be right; names the file and the line.
    """
    return tuple(_read(path) for path in fetched_files())


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
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        from trainwright.artifact.store import write_atomically  # it loads pydantic, which a plan does without

        write_atomically(path, text.getvalue().encode())
    return path


def add(row: Mapping[str, str]) -> Path:
    """Put a price into the user's own list, in place of one of the same device, provider, kind and region.

    Several processes that add at the same time wait for each other.

    Raises:
        MachineError: the folder cannot be read or written.
        DataError: the list as it is cannot be read whole: it stays as it is.
    """
    same = ("device", "provider", "kind", "region")
    path = folder() / f"{OWN}.csv"
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{OWN}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = _read(path).rows if path.exists() else ()
        others = [each for each in kept if any(each[name] != row.get(name, "") for name in same)]
        return write(OWN, [{column: each.get(column, "") for column in COLUMNS} for each in (*others, row)])


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(
            "cannot write a price list", where=path, seen=error.strerror, fix="set XDG_DATA_HOME to a writable folder"
        ) from error


def _read(path: Path) -> Snapshot:
    """Returns a list of this user's folder."""
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise MachineError(
            "cannot read a price list", where=path, seen=error.strerror, fix="delete it, or make it readable"
        ) from error
    rows = _rows(content, path, own=path.stem == OWN)
    dates = [date for row in rows if (date := row.get("as_of"))]
    return Snapshot(name=path.stem, recorded=max(dates, default=""), rows=rows, path=path)


def _rows(content: bytes, where: object, *, own: bool = False) -> tuple[Mapping[str, str], ...]:
    """Returns rows with every column; those that a file may lack are empty. The ``own`` say ``where`` they stand."""
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = [name.strip() for name in reader.fieldnames or ()]
        if not set(NEEDED) <= set(header) <= set(COLUMNS) or len(header) > len(set(header)):
            raise DataError(
                "not a price list: its first line does not name the columns",
                where=f"{where}:1",
                seen=repr(",".join(header)),
                expected=f"{','.join(NEEDED)} with commas between them, and of {','.join(COLUMNS)} no others",
                fix="mend that line, or move the file away",
            )
        reader.fieldnames = header
        rows = []
        for read in reader:
            row = {column: (read.get(column) or "").strip() for column in COLUMNS}
            if None in read:
                raise DataError("more values than columns", where=f"{where}:{reader.line_num}", seen=read[None])
            place = f"{where}:{reader.line_num}"
            rows.append({**checked_row(row, where=place), "where": place} if own else row)
        if own:
            refuse_twins(rows)
    except UnicodeDecodeError as error:
        line = len((content[: error.start] + b".").splitlines())
        seen = repr(content[error.start : error.end])
        fix = "save it as UTF-8, or move it away"
        raise DataError("a price list that is not UTF-8", where=f"{where}:{line}", seen=seen, fix=fix) from error
    except csv.Error as error:
        raise DataError("not a price list", where=f"{where}:{reader.reader.line_num}", seen=error) from error
    return tuple(rows)
