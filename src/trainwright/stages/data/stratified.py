"""The split of labelled data: every class is cut by the shares of ``data.split``.

What is never parted is a *unit*: the documents of one group, or those of equal content. The units of a class stand in
an order that hashes decide, so that the cut is a function of the data alone. The whole set decides, not each unit: one
more document may move a neighbour of the cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainwright.core.spelling import counted
from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.arrange import SPLITS, unit_of
from trainwright.stages.data.parts import read_section

Units = dict[bytes, Counter[str]]
"""How many documents of each class a unit has, by the bytes that order it."""
Pieces = Sequence[tuple[int, Path, int, int]]
"""Where the documents of a bucket lie: source, part, offset, length."""


def splits_of_buckets(buckets: Sequence[Pieces], shares: SplitSection, *, exact: bool) -> list[dict[bytes, str]]:
    """Returns the split of each unit, for each bucket those of its documents; texts are not read."""
    units: Units = {}
    found = [_add(units, pieces, exact=exact) for pieces in buckets]
    splits = splits_of(units, shares)
    return [{unit: splits[unit] for unit in here} for here in found]


def _add(units: Units, pieces: Pieces, *, exact: bool) -> set[bytes]:
    """Counts the documents of a bucket, where duplicates are dropped the first of equal ones; returns their units."""
    seen, here = set[bytes](), set[bytes]()
    for _, path, offset, length in pieces:
        for document in read_section(path, offset, length, texts=False):
            if exact and document.digest in seen:
                continue
            seen.add(document.digest)
            here.add(unit := unit_of(document))
            units.setdefault(unit, Counter())[str(document.label)] += 1
    return here


def splits_of(units: Mapping[bytes, Mapping[str, int]], shares: SplitSection) -> dict[bytes, str]:
    """Returns the split of each unit; one of several classes counts for its commonest, of equally common the first.

    Each class has the shares to the nearest unit, counted in documents, and where it has as many units as there are
    splits at least one unit in each. Of one with fewer, ``train`` has the first.
    """
    by_label: dict[str, list[bytes]] = {}
    for unit in sorted(units):
        counts = units[unit]
        by_label.setdefault(min(counts, key=lambda label: (-counts[label], label)), []).append(unit)
    return {
        unit: split
        for members in by_label.values()
        for unit, split in zip(members, _cut([sum(units[unit].values()) for unit in members], shares), strict=True)
    }


def _cut(sizes: Sequence[int], shares: SplitSection) -> Iterator[str]:
    """Yields the splits of units of so many documents each, in order."""
    wanted = [split for split in SPLITS if getattr(shares, split) > 0]
    documents, border, start = sum(sizes), 0.0, 0
    for number, split in enumerate(wanted):
        border += getattr(shares, split)
        later = len(wanted) - 1 - number
        stop = _nearest(sizes, round(border * documents, 6)) if later else len(sizes)
        stop = min(max(stop, start + 1), max(len(sizes) - later, start + 1), len(sizes))
        yield from [split] * (stop - start)
        start = stop


def _nearest(sizes: Sequence[int], border: float) -> int:
    """Returns how many units lie before a border: those of which half the documents do."""
    before = 0
    for number, size in enumerate(sizes):
        if before + size / 2 > border:
            return number
        before += size
    return len(sizes)


def classes_of_splits(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Returns of each split how many documents of each class it has, every class named in each; by name."""
    names = sorted({name for each in counts.values() for name in each})
    return {split: {name: each.get(name, 0) for name in names} for split, each in counts.items()}


def missing(classes: Mapping[str, Mapping[str, int]], wanted: Sequence[str], unit: str = "document") -> Iterator[str]:
    """Yields a line for each class that one of the wanted splits lacks.

    Args:
        classes: as ``classes_of_splits`` returns them.
        wanted: the splits that have a share.
        unit: what is counted of each class.
    """
    for name in classes[wanted[0]]:
        without = [split for split in wanted if not classes[split][name]]
        if without:
            documents = sum(each[name] for each in classes.values())
            yield (
                f"the class {name!r} is too small for every split: {counted(documents, unit)}, "
                f"none in {' or '.join(without)}"
            )
