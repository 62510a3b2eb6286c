"""Phase 1: read -> clean -> parts. A unit is what one worker reads; its parts are what an interruption keeps."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.core.registry import load
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.chats.cleaning import cleaner_of
from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.corpus.documents import raw_documents
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument, SkippedFile
from trainwright.stages.data.corpus.files import not_a_document
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import Document, bucket_of, publish_part, read_footer
from trainwright.stages.data.sources import source_of

STORED = "trainwright.stages.data.images.pixels:stored"
"""Loaded where sources give images."""
_UNIT_BYTES = 8 << 20
"""Small files are read together up to this size."""
_RANGE_BYTES = 64 << 20
"""Plain local JSON-lines files are cut into ranges of this size; others are read by one worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Consecutive files of one source, or a range of one. Units are numbered in the corpus's order."""

    number: int
    source: int
    ranges: tuple[FileRange, ...]

    @property
    def size_bytes(self) -> int:
        """Returns bytes as stored."""
        return sum((part.stop or part.file.size_bytes) - part.start for part in self.ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadJob:
    """One unit and what to do with it."""

    unit: Unit
    section: DataSection
    bucket_bits: int
    directory: Path


def plan_units(files: Iterable[CorpusFile], section: DataSection) -> tuple[Unit, ...]:
    """Cut the corpus into units: a function of the corpus alone, so that any number of workers makes the same parts."""
    units: list[Unit] = []
    for number, group in itertools.groupby(files, key=lambda file: file.source):
        splittable = source_of(section.sources[number]).by_lines
        together: list[FileRange] = []
        for file in group:
            for part in _ranges(file, splittable=splittable):
                together.append(part)
                if part.stop is not None or sum(item.file.size_bytes for item in together) >= _UNIT_BYTES:
                    units.append(Unit(number=len(units), source=number, ranges=tuple(together)))
                    together = []
        if together:
            units.append(Unit(number=len(units), source=number, ranges=tuple(together)))
    return tuple(units)


def _ranges(file: CorpusFile, *, splittable: bool) -> list[FileRange]:
    plain = not file.remote and not file.location.endswith((".gz", ".zst"))
    if not (splittable and plain and file.size_bytes > _RANGE_BYTES):
        return [FileRange(file=file)]
    starts = range(0, file.size_bytes, _RANGE_BYTES)
    return [FileRange(file=file, start=at, stop=min(at + _RANGE_BYTES, file.size_bytes)) for at in starts]


def part_paths(directory: Path, unit: int) -> Iterable[Path]:
    """Returns the paths that a unit's parts have, in order, without end."""
    return (directory / f"read-{unit:06d}-{part:05d}.part" for part in itertools.count())


def finished_parts(directory: Path, unit: int) -> tuple[list[Path], list[dict[str, Any]]]:
    """Returns a unit's parts so far and their footers."""
    paths, footers = [], []
    for path in part_paths(directory, unit):
        footer = read_footer(path)
        if footer is None:
            break
        paths.append(path)
        footers.append(footer)
        if footer["last"]:
            break
    return paths, footers


def read_unit(job: ReadJob) -> int:
    """Read and clean a unit from where its parts end, writing further parts; returns the unit's bytes as stored.

    Raises:
        DataError: a file cannot be read, or ``strict`` and a record is broken.
        RecipeError: a filter from outside the project failed.
        MachineError: the disk is full.
    """
    paths, footers = finished_parts(job.directory, job.unit.number)
    if footers and footers[-1]["last"]:
        return job.unit.size_bytes
    skip = footers[-1]["records"] if footers else 0
    source = job.section.sources[job.unit.source]
    rules = job.section.exec
    records = ((part, record) for part in job.unit.ranges for record in raw_documents(part, source))
    builder = _PartBuilder(job)
    seen = skip
    targets = itertools.islice(part_paths(job.directory, job.unit.number), len(paths), None)
    for part, record in itertools.islice(records, skip, None):
        seen += 1
        builder.add(part.file, record)
        if builder.funnel.read.documents >= rules.part_documents or builder.held_bytes >= rules.part_bytes:
            builder.publish(next(iter(targets)), records=seen, last=False)
            builder = _PartBuilder(job, cleaner=builder.cleaner)
    builder.publish(next(iter(targets)), records=seen, last=True)
    return job.unit.size_bytes


class _PartBuilder:
    """One part in memory."""

    def __init__(self, job: ReadJob, cleaner: Cleaner | None = None) -> None:
        self.cleaner = cleaner or cleaner_of(job.section)
        self.funnel = Funnel()
        self.held_bytes = 0
        self._job = job
        self._buckets: dict[int, list[Document]] = {}

    def add(self, file: CorpusFile, record: RawDocument) -> None:
        """Clean one record and count what became of it."""
        self.funnel.read.add(record.size_bytes)
        place = file.name + record.position
        if not record.whole:
            if self._job.section.strict:
                raise not_a_document(file, record)
            self.funnel.lose(self.funnel.broken, str(record.problem), record.size_bytes, place)
            return
        if record.text is None:
            data = bytes(load(STORED, kind="image")(record.pixels, self._job.section.images))
        else:
            text, reason = self.cleaner(record.text)
            if reason is not None:
                self.funnel.lose(self.funnel.dropped, reason, record.size_bytes, place)
                return
            data = text.encode()
        digest = hashlib.sha256(data).digest()
        document = Document(digest, place, data, record.label, record.group)
        self._buckets.setdefault(bucket_of(digest, self._job.bucket_bits), []).append(document)
        self.held_bytes += len(data)

    def publish(self, path: Path, *, records: int, last: bool) -> None:
        """Write the part; ``records`` of the unit are behind it."""
        publish_part(path, self._buckets, {"records": records, "last": last, "funnel": self.funnel.to_json()})


def read_funnels(directory: Path, units: Sequence[Unit], skipped: Sequence[SkippedFile], sources: int) -> list[Funnel]:
    """Returns what all parts say about each source, in the corpus's order, after the files that were skipped."""
    funnels = [Funnel() for _ in range(sources)]
    for file in skipped:
        funnels[file.source].read.add(0)
        funnels[file.source].lose(funnels[file.source].broken, file.reason, 0, file.name)
    for unit in units:
        for footer in finished_parts(directory, unit.number)[1]:
            funnels[unit.source].merge(Funnel.from_json(footer["funnel"]))
    return funnels
