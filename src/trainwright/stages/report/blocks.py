"""The parts of a page: sections of blocks, as plain data that the template lays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainwright.stages.report.charts import Chart, describe, draw

Tone = Literal["", "good", "warn", "bad", "dim"]

FULL_PX, HALF_PX, NARROW_PX = 1060, 512, 330
"""Widths that charts are drawn for: across the page, half of it, and a phone."""

PHONE_CHARACTERS, WRAPPED_CHARACTERS = 44, 14
"""Characters of all columns that fit beside each other on a phone, and of the first column where it wraps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A table's cell; ``code`` is set in a fixed-width face."""

    text: str
    tone: Tone = ""
    code: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Columns are names; those in ``right`` hold numbers; ``headings`` stand above the rows of these numbers.

    On a phone a table that is wider than the screen becomes a list: each value beside the name of its column.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    right: Sequence[int] = ()
    headings: Mapping[int, str] = field(default_factory=dict)
    note: str = ""
    wide: bool = False
    kind: str = "table"

    @property
    def is_list_on_a_phone(self) -> bool:
        """Returns whether its columns do not fit beside each other there; the first one may wrap."""
        texts = [[cell.text for cell, _, _ in row] for row in self.cells()]
        widths = [max(map(len, column)) for column in zip(self.columns, *texts, strict=True)]
        return min(widths[0], WRAPPED_CHARACTERS) + sum(widths[1:]) > PHONE_CHARACTERS

    def cells(self) -> list[list[tuple[Cell, bool, str]]]:
        """Returns each row's cells, whether they stand right, and their column."""
        return [
            [
                (cell if isinstance(cell, Cell) else Cell(text=cell), index in self.right, self.columns[index])
                for index, cell in enumerate(row)
            ]
            for row in self.rows
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Names and values."""

    title: str
    facts: Sequence[tuple[str, str]]
    wide: bool = False
    kind: str = "facts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A chart with what to see in it; several views of one chart are chosen by name."""

    views: Sequence[tuple[str, Chart]]
    note: str = ""
    wide: bool = False
    kind: str = "figure"

    @property
    def title(self) -> str:
        """Returns the title of the first view."""
        return self.views[0][1].title

    def drawings(self) -> list[tuple[str, str, str, str]]:
        """Returns ``(view, wide svg, narrow svg, description)`` of each view."""
        width = FULL_PX if self.wide else HALF_PX
        return [(name, draw(chart, width), draw(chart, NARROW_PX), describe(chart)) for name, chart in self.views]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A text and how the model went on; the part that stands in the training text is marked."""

    prompt: str
    completion: str
    note: str
    overlap: str = ""
    wide: bool = True
    kind: str = "sample"

    def parts(self) -> tuple[str, str, str]:
        """Returns the completion before, in and after its overlap."""
        return self.completion.partition(self.overlap) if self.overlap else (self.completion, "", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """Text to copy, folded away."""

    title: str
    text: str
    wide: bool = True
    kind: str = "code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A part that is not there, and the command that makes it."""

    text: str
    command: str
    wide: bool = True
    kind: str = "missing"


Block = Table | Facts | Figure | Sample | Code | Missing


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSection:
    """A part of the page with an anchor; ``lead`` says in a sentence what it shows."""

    key: str
    title: str
    lead: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One answer of the verdict."""

    question: str
    answer: str
    detail: str
    tone: Tone = ""
