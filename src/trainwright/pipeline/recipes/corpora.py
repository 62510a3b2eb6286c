"""The answer to "which data?": a file, a folder, a pattern or a source of ours, looked at as a recipe needs it."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from pydantic import ValidationError

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import local_path
from trainwright.core.registry import load
from trainwright.core.spelling import unknown
from trainwright.pipeline.recipes.kinds import Kind
from trainwright.spec.recipe import GIVEN
from trainwright.spec.sections.corpus.sources import SOURCES, SourceSection
from trainwright.spec.sections.data import DataSection, ImagesSection
from trainwright.spec.sections.task import TASKS

FIELD = "data"
USUAL = {
    "text": ("text", "body", "content", "sentence", "review", "message", "description"),
    "label": ("label", "class", "category", "queue", "target", "topic", "sentiment"),
}
"""What columns of texts and labels are called where nobody says it."""
TABLES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
KEYS = {"jsonl": ("text_key", "label_key"), **dict.fromkeys(("csv", "parquet"), ("text_column", "label_column"))}
RECORD_FILES = (".jsonl", ".ndjson", ".parquet")
"""What chats and preferences are read from."""
MOST_LABELS = 1000
"""Classes that a recipe names one by one."""


class Survey(Protocol):
    """What is asked of a look at the data (``trainwright.stages.data.corpus.survey``)."""

    @property
    def documents(self) -> int:
        """Returns how many were found."""

    @property
    def problem(self) -> str | None:
        """Returns the first record that is none."""

    @property
    def labels(self) -> Mapping[str, int]:
        """Returns the classes."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Returns the bytes of each text."""

    @property
    def whole(self) -> bool:
        """Returns whether all was looked at."""

    def longest(self, share: float) -> int:
        """Returns the bytes that a share of the texts does not exceed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenData:
    """What a recipe's ``data.sources`` says, and what a look at it told.

    Attributes:
        answer: what was given.
        source: the keys of the source.
        labels: the classes, of a task that has some.
        survey: what the first texts are like; None of images.
        images: the ``data.images`` section, of images.
    """

    answer: str
    source: dict[str, Any]
    labels: tuple[str, ...] = ()
    survey: Survey | None = None
    images: Mapping[str, Any] | None = None


class ColumnNeeded(RecipeError):
    """Nobody said which column it is, and no name of one tells it.

    Args:
        role: ``text`` or ``label``.
        columns: that there are.
    """

    def __init__(self, role: str, columns: tuple[str, ...]) -> None:
        fix = f"say it with `{role}`"
        super().__init__("which column holds the {role}?", field=role, seen=", ".join(columns), fix=fix, role=role)
        self.role, self.columns = role, columns


def chosen_data(answer: str, kind: Kind, columns: Mapping[str, str | None]) -> ChosenData:
    """Returns the data that an answer names, for a recipe of a kind.

    Args:
        answer: a file, a folder, a pattern, a URL, or the name of a source that needs no files.
        kind: of the recipe.
        columns: names of the columns of ``text`` and ``label``; None: what they are usually called.

    Raises:
        ColumnNeeded: that does not tell them.
        RecipeError: there is no such data, or it does not suit the task.
        DataError: it cannot be read.
    """
    needs = TASKS[kind.task["name"]].needs
    if not answer:
        raise RecipeError("no data is named", field=FIELD, expected=expected(needs))
    source = {"kind": answer} if answer in without_files(needs) else _of_files(answer, needs)
    _check_columns(source, columns, labelled=needs == "documents-with-labels")
    section = _section(source, needs)
    if source["kind"] in KEYS:
        source |= _columns(section, columns, labelled=needs == "documents-with-labels")
        section = _section(source, needs)
    if needs == "images":
        images = {"size": 8, "colour": "grey"} if answer == "sklearn-digits" else {"size": 64}
        return ChosenData(answer=answer, source=source, labels=_classes(section, images), images=images)
    found: Survey = _asked(section, "survey")
    if not found.documents and found.problem is not None:
        raise RecipeError("no record of this data can be learnt from", field=FIELD, seen=found.problem)
    labels = tuple(found.labels) if needs == "documents-with-labels" else ()
    _check_classes(labels, needs, answer, documents=found.documents)
    return ChosenData(answer=answer, source=source, labels=labels, survey=found)


def without_files(needs: str) -> tuple[str, ...]:
    """Returns the names of our sources that need no files, of what a task needs."""
    return tuple(name for name in SOURCES if _gives(name, needs))


def expected(needs: str) -> str:
    """Returns what may be answered."""
    files = {
        "documents": "texts (a folder, *.txt, *.jsonl, *.csv, *.parquet)",
        "documents-with-labels": "a table (*.csv, *.tsv, *.jsonl, *.parquet) with columns of texts and labels",
        "chats": "chats (*.jsonl or *.parquet)",
        "preferences": "pairs of answers (*.jsonl or *.parquet)",
        "images": "a folder with a folder of images for each class",
    }
    ours = without_files(needs)
    return files[needs] + (f", or {' or '.join(ours)}" if ours else "")


def _gives(name: str, needs: str) -> bool:
    """Returns whether a source without any further key gives what a task needs."""
    try:
        section = _section({"kind": name}, needs)
    except ValidationError:  # it needs paths
        return False
    return section.records == _records(needs) and (needs != "documents-with-labels" or section.labelled)


def _records(needs: str) -> str:
    return needs if needs in GIVEN else "documents"


def _section(source: Mapping[str, Any], needs: str) -> SourceSection:
    rest = {"images": {"size": 8}} if needs == "images" else {}
    return DataSection.model_validate({"sources": [dict(source)], **rest}).sources[0]


def _of_files(answer: str, needs: str) -> dict[str, Any]:
    """Returns the keys of a source of files. Raises a RecipeError where there are none, or others than are needed."""
    place = local_path(answer)
    if "://" not in answer and not glob.has_magic(answer) and not place.exists():
        names = (*without_files(needs), *_neighbours(place))
        fix = unknown(answer, names)["fix"]
        raise RecipeError("no such file or folder", field=FIELD, seen=repr(answer), expected=expected(needs), fix=fix)
    ending = _ending(place) if place.is_dir() else _suffix(answer)
    if needs == "images":
        if not place.is_dir():
            raise RecipeError("images lie in folders", field=FIELD, seen=repr(answer), expected=expected(needs))
        return {"kind": "images", "paths": [answer]}
    if needs in ("chats", "preferences"):
        if ending not in RECORD_FILES:
            raise RecipeError(
                "no {records} here", field=FIELD, seen=repr(answer), expected=expected(needs), records=needs
            )
        return {"kind": needs, "paths": [answer]}
    if ending in TABLES:
        return {"kind": TABLES[ending], "paths": [answer]}
    if needs == "documents-with-labels":
        raise RecipeError("texts without labels", field=FIELD, seen=repr(answer), expected=expected(needs))
    return {"kind": "files" if place.is_dir() or glob.has_magic(answer) else "text", "paths": [answer]}


def _neighbours(place: Path) -> list[str]:
    """Returns the names beside a path that is not there, as they would be written."""
    folder = place.parent
    if not folder.is_dir():
        return []
    return [str(folder / each.name) if folder != Path() else each.name for each in folder.iterdir()]


def _suffix(name: str) -> str:
    """Returns the ending of a file's name, without that of its compression."""
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return PurePosixPath(plain).suffix.lower()


def _ending(folder: Path) -> str:
    """Returns the ending that says how the files of a folder are read: a table's where the first files are tables."""
    names = sorted(each.name for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    return next((ending for ending in map(_suffix, names) if ending in TABLES), "")


def _check_columns(source: Mapping[str, Any], columns: Mapping[str, str | None], *, labelled: bool) -> None:
    """Refuses columns where there are none."""
    given = [role for role, name in columns.items() if name is not None]
    if given and source["kind"] not in KEYS:
        raise RecipeError("this data has no columns to choose", field=given[0], seen=source["kind"], fix="leave it out")
    if "label" in given and not labelled:
        raise RecipeError("this kind learns no labels", field="label", seen=columns["label"], fix="leave it out")


def _columns(section: SourceSection, columns: Mapping[str, str | None], *, labelled: bool) -> dict[str, str]:
    """Returns the keys that name the columns of a table.

    Raises:
        ColumnNeeded: nobody says which one it is.
        RecipeError: a column is not there; names those that are.
    """
    there: tuple[str, ...] = _asked(section, "columns_of")
    keys = {}
    for role, key in zip(("text", "label")[: 1 + labelled], KEYS[section.kind], strict=False):
        name = columns.get(role)
        if name is None:
            name = next((usual for usual in USUAL[role] if usual in there), None)
            if name is None:
                raise ColumnNeeded(role, there)
        elif there and name not in there:
            raise RecipeError("no such column", field=role, **unknown(name, there))
        keys[key] = name
    return keys


def _asked(section: SourceSection, function: str) -> Any:
    try:
        return load(f"trainwright.stages.data.corpus.survey:{function}", kind="function")(section)
    except TrainwrightError as error:
        seen = error.where if error.seen is None else f"{error.where}: {error.seen}"
        raise error.at(None, seen=seen).about(FIELD) from error


def _classes(section: SourceSection, images: Mapping[str, Any]) -> tuple[str, ...]:
    data = DataSection(sources=(section,), images=ImagesSection.model_validate(images))
    labels: tuple[str, ...] = load("trainwright.stages.data.corpus.head:labels_at_head", kind="function")(data)
    _check_classes(labels, "images", getattr(section, "paths", (section.kind,))[0], documents=None)
    return labels


def _check_classes(labels: tuple[str, ...], needs: str, answer: str, *, documents: int | None) -> None:
    """Refuses so few classes that there is nothing to tell, and so many that they are none, such as numbers."""
    if needs not in ("documents-with-labels", "images"):
        return
    field = FIELD if needs == "images" else "label"
    if len(labels) < 2:
        seen = f"{', '.join(map(repr, labels)) or 'none'} in {answer}"
        raise RecipeError("at least two classes can be told apart", field=field, seen=seen, expected=expected(needs))
    if len(labels) > MOST_LABELS or (documents is not None and len(labels) > max(2, documents / 2)):
        of = "" if documents is None else f" of {documents:,} texts"
        seen = f"{len(labels):,}{of}, such as {', '.join(map(repr, labels[:3]))}"
        raise RecipeError("so many labels are no classes", field=field, seen=seen, fix="take another column")
