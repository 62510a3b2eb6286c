"""Reads a CSV of published training measurements: one row, one run, what was measured and by which definition.

The columns are described in docs/en/published.md. A row that cannot be read is kept with the reason.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO, cast

from trainwright.core.errors import DataError, RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import regular
from trainwright.core.units import GIB
from trainwright.planner.evidence.finished import FinishedRun, finished_run
from trainwright.planner.evidence.ledger import is_ledger
from trainwright.planner.evidence.user_run import SHAPE, as_printed, checked
from trainwright.planner.evidence.words import flag
from trainwright.planner.plan.sizes import MOST_SEQUENCE_TOKENS
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import MemoryKind

REQUIRED = ("id", "framework", "arch", "n_layers", "hidden", "seq_len", "gpu", "n_gpus")
"""Columns without which a file is no table of runs."""
LARGEST = 10**15
"""No count in a table of runs comes near."""
_MOST = {"seq_len": MOST_SEQUENCE_TOKENS}
"""Columns that have a limit of their own, the command line's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One row as it is printed, with its notes taken apart (``a=b;c`` becomes ``{"a": "b", "c": ""}``).

    ``model`` is the model that a user's run names in place of the columns of a shape; ``surplus`` are cells beyond the
    last column.
    """

    line: int
    values: Mapping[str, str]
    notes: Mapping[str, str]
    model: ModelSpec | None = None
    surplus: str = ""

    def refuse_surplus(self) -> None:
        """Raises ValueError for more cells than columns: which of them a comma has moved, nobody knows."""
        if self.surplus:
            raise ValueError(f"more cells than columns: {self.surplus}, expected quotes around a text with commas")

    def text(self, name: str) -> str:
        """Returns a column's text, empty where there is none."""
        return self.values.get(name, "")

    def number(self, name: str) -> float | None:
        """Returns a column as a number; None where it is empty.

        Raises:
            ValueError: it is no number, below zero or without end.
        """
        text = self.text(name)
        return number(name, text) if text else None

    def whole(self, name: str, default: int | None = None) -> int:
        """Returns a column as a positive whole number.

        Raises:
            ValueError: it is empty without a default, not one, or more than any run has.
        """
        value = self.number(name)
        if value is None:
            if default is None:
                raise ValueError(f"{name} is empty")
            return default
        if not 1 <= value <= LARGEST or value != int(value):
            raise ValueError(f"{name} is {self.text(name)}, expected a positive whole number")
        if value > (most := _MOST.get(name, LARGEST)):
            raise ValueError(f"{name} is {self.text(name)}, expected at most {most:.0e}: more than any run has")
        return int(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a row says was measured; None where it does not say.

    ``tokens_per_s`` is per device: as printed, or from the printed TFLOP/s and what they count; ``derived`` where it
    follows from the printed step time and batch. ``memory_bytes`` is one device's peak by ``memory_kind``, on the
    pipeline stage ``memory_stage``.
    """

    tokens_per_s: float | None
    derived: bool
    memory_bytes: float | None
    memory_kind: MemoryKind | None
    out_of_memory: bool
    memory_stage: Literal["worst", "first", "last"] = "worst"

    @property
    def is_empty(self) -> bool:
        """Returns whether there is nothing to hold a prediction against."""
        return not (self.tokens_per_s or self.memory_bytes or self.out_of_memory)


def read_records(path: Path, *, required: Sequence[str] = REQUIRED) -> list[Record]:
    """Returns all rows of a table with the ``required`` columns, by default those of a table of runs.

    Raises:
        RecipeError: there is no such file.
        DataError: it is not UTF-8, lacks a required column, or has one twice.
    """
    with _opened(path) as lines:
        reader = csv.DictReader(lines)
        _refuse_twice(path, reader.fieldnames or ())
        missing = ", ".join(name for name in required if name not in (reader.fieldnames or ()))
        if missing:
            what, expected = "not a table of published runs", f"columns {', '.join(required)}, ..."
            fix = "docs/en/published.md lists them all"
            raise DataError(what, where=str(path), seen=f"no column {missing}", expected=expected, fix=fix)
        return [
            Record(
                line=reader.line_num,
                values={name: (value or "").strip() for name, value in row.items() if isinstance(name, str)},
                notes=take_apart(row.get("notes") or ""),
                surplus=", ".join(cell for cell in cast(Mapping[None, list[str]], row).get(None, ()) if cell.strip()),
            )
            for row in reader
        ]


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        what, expected = "not a table of published runs", "each column once"
        raise DataError(what, where=str(path), seen=f"two columns {twice}", expected=expected)


def read_tables(paths: Sequence[Path], *, required: Sequence[str] = REQUIRED) -> list[Record]:
    """Returns all rows of several tables, one after the other; raises as ``read_records``.

    Raises:
        DataError: an id stands in two of them: one measurement would count twice.
    """
    records: list[Record] = []
    origins: dict[str, Path] = {}
    for path in paths:
        own = read_records(path, required=required)
        twice = next((row.text("id") for row in own if row.text("id") in origins), None)
        if twice is not None:
            what, seen = "one row in two tables", f"id {twice}, also in {origins[twice]}"
            raise DataError(what, where=str(path), seen=seen, expected="each id in one table")
        origins |= {row.text("id"): path for row in own if row.text("id")}
        records += own
    return records


def columns(path: Path) -> list[str]:
    """Returns the names in a table's first line; raises as ``read_records``."""
    with _opened(path) as lines:
        return next(csv.reader(lines), [])


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Yields the table's lines; what goes wrong in reading them is one line, a byte-order mark is none of them."""
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as lines:
            yield lines
    except FileNotFoundError:
        raise RecipeError("no such file", where=path) from None
    except OSError as error:
        raise DataError("cannot read the table", where=str(path), seen=error.strerror or str(error)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError("cannot read the table", where=str(path), seen=str(error), expected="CSV in UTF-8") from None


def read_runs(path: Path) -> Sequence[Record | FinishedRun]:
    """Returns measured runs of one's own: a table as above, a ledger (``.jsonl``), or JSON with the table's names.

    JSON holds one object, or a list of them.

    Raises:
        RecipeError: there is no such file.
        DataError: it is neither, or lacks a required name.
    """
    if path.suffix == ".csv":
        if not (records := read_records(path)):
            raise DataError(
                "no run in this file", where=str(path), seen="a first line alone", expected="a run on each line"
            )
        return records
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise RecipeError("no such file", where=path) from None
    except OSError as error:
        raise DataError("cannot read the run", where=str(path), seen=error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise DataError("not JSON", where=str(path), seen=str(error), expected="JSON in UTF-8") from None
    if path.suffix == ".jsonl":
        lines = enumerate(text.splitlines(), start=1)
        content = [_parsed(line, f"{path}:{place}", "a run on each line") for place, line in lines if line.strip()]
    else:
        whole = _parsed(text, str(path), "one run, or a list of them")
        content = whole if isinstance(whole, list) else [whole]
    if not content:
        raise DataError("no run in this file", where=str(path), expected="one run, or a list of them")
    return [_run(run, path, place) for place, run in enumerate(content, start=1)]


def _parsed(text: str, where: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError("not JSON", where=where, seen=str(error), expected=expected) from None


def _run(run: Any, path: Path, place: int) -> Record | FinishedRun:
    """Returns a line of a ledger as the run that it is, or a run as a user wrote it as the columns of a table."""
    what, where, fix = "not a measured run", f"{path}, run {place}", "docs/en/published.md shows one"
    if not isinstance(run, dict):
        raise DataError(what, where=where, seen=json.dumps(run)[:40], expected="an object", fix=fix)
    if is_ledger(run):
        try:
            return finished_run(run, where=where)
        except ValueError as error:
            raise DataError("not a line of a ledger", where=where, seen=str(error)) from None
    columns, model = checked(run, where=where, place=place)
    missing = ", ".join(name for name in REQUIRED if name not in columns and not (model and name in SHAPE))
    if missing:
        expected = f"{', '.join(REQUIRED)}, and what was measured"
        fix = "model: llama3-8b stands for a shape; docs/en/published.md shows a run"
        raise DataError(what, where=where, seen=f"no {missing}", expected=expected, fix=fix)
    return Record(
        line=place,
        values={name: as_printed(value) for name, value in columns.items() if value is not None},
        notes=take_apart(str(columns.get("notes") or "")),
        model=model,
    )


def number(name: str, text: str) -> float:
    """Returns the number that a column, or a setting in the notes, says.

    Raises:
        ValueError: it is none, below zero or without end.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text}, expected a number") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {text}, expected a finite number that is not below zero")
    return value


def take_apart(notes: str) -> dict[str, str]:
    """Returns ``a=b;c`` as a mapping; of two with one name the first holds."""
    parts: dict[str, str] = {}
    for part in notes.split(";"):
        name, _, value = part.strip().partition("=")
        if name:
            parts.setdefault(name.strip(), value.strip())
    return parts


def measured(
    record: Record, *, devices: int, batch_tokens: int | None, reports: MemoryKind, token_flops: float | None = None
) -> Measured:
    """Returns the row's measurements; ``reports`` is the framework's kind of memory where the notes name none.

    ``token_flops`` are the operations that its TFLOP/s count for one token. Raises as ``Record.number``.
    """
    printed, rate = record.number("tokens_per_s_per_gpu"), record.number("tflops_per_gpu")
    step_s, memory = record.number("step_time_s"), record.number("peak_mem_gib_per_gpu")
    if not printed and rate and token_flops:
        printed = rate * 1e12 / token_flops
    derived = batch_tokens / step_s / devices if not printed and step_s and batch_tokens else None
    return Measured(
        tokens_per_s=printed or derived,
        derived=not printed and derived is not None,
        memory_bytes=memory * GIB if memory else None,
        memory_kind=memory_kind(record, reports) if memory else None,
        out_of_memory=bool(flag("oom", record.text("oom"))),
        memory_stage=memory_stage(record),
    )


def memory_stage(record: Record) -> Literal["worst", "first", "last"]:
    """Returns the pipeline stage whose memory a row prints; nvidia-smi shows the first node unless notes differ."""
    text = record.text("notes").lower()
    if "last rank" in text:
        return "last"
    return "first" if "nvidia-smi" in text and "stage max" not in text else "worst"


def memory_kind(record: Record, reports: MemoryKind) -> MemoryKind:
    """Returns the definition of the row's memory, from its notes."""
    text = record.text("notes").lower()
    if "nvidia-smi" in text or "incl. context" in text:
        return "device"
    if "reserved" in text:
        return "reserved"
    if "allocated" in text or "analytic" in text or "active" in record.notes.get("memory", "").lower():
        return "allocated"
    return reports
