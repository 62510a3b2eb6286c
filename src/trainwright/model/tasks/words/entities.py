"""Entities that labels of words name, and how many of them are told: by their exact words and kind.

A label is ``O`` outside of an entity, or a letter, ``-`` and the kind of its entity. In IOB2 an entity begins with
``B`` and goes on with ``I`` (Tjong Kim Sang and Veenstra, "Representing text chunks", EACL 1999); in IOBES and BILOU
its last word has a letter of its own, and so has an entity of one word (Ratinov and Roth, CoNLL 2009). Reading is
strict: what is no whole entity of its scheme is none. No torch, so that data and check use it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Scheme = Literal["IOB2", "IOBES", "BILOU"]
OUTSIDE = "O"
ENDS: Mapping[Scheme, tuple[str, str]] = {"IOB2": ("", ""), "IOBES": ("E", "S"), "BILOU": ("L", "U")}
"""Letters of an entity's last word and of one of a single word; of IOB2 there are none."""
Entity = tuple[int, int, str]
"""Its first word, the one behind its last, and its kind."""


def scheme_of(labels: Iterable[str]) -> Scheme | None:
    """Returns the scheme that labels are of, the one with the fewest letters; None where they name no entities."""
    parts = [label.partition("-") for label in labels if label != OUTSIDE]
    if not all(dash and kind for _, dash, kind in parts):
        return None
    letters = {letter for letter, _, _ in parts}
    fitting = (scheme for scheme, ends in ENDS.items() if letters <= {"B", "I", *ends})
    return next(fitting, None) if "B" in letters else None


def entities(labels: Sequence[str], scheme: Scheme) -> Iterator[Entity]:
    """Yields the entities of a sentence, in order."""
    last, single = ENDS[scheme]
    place = 0
    while place < len(labels):
        letter, _, kind = labels[place].partition("-")
        stop = place + 1
        if letter == "B":
            while stop < len(labels) and labels[stop] == f"I-{kind}":
                stop += 1
            ends = bool(last) and stop < len(labels) and labels[stop] == f"{last}-{kind}"
            stop += ends
            if ends or not last:
                yield place, stop, kind
        elif letter == single:
            yield place, stop, kind
        place = stop


def is_broken(labels: Sequence[str], scheme: Scheme) -> bool:
    """Returns whether a label of a sentence is of no whole entity, such as an ``I`` behind no ``B`` of its kind."""
    inside = sum(stop - first for first, stop, _ in entities(labels, scheme))
    return inside != sum(label != OUTSIDE for label in labels)


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """How many entities of each kind are there, were told, and were told right."""

    scheme: Scheme
    there: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)

    def add(self, true: Sequence[str], told: Sequence[str]) -> None:
        """Count the entities of a sentence by its true labels and by those that were told."""
        ours, theirs = set(entities(true, self.scheme)), set(entities(told, self.scheme))
        for counter, found in ((self.there, ours), (self.told, theirs), (self.right, ours & theirs)):
            counter.update(kind for _, _, kind in found)

    def rates(self) -> dict[str, float | None]:
        """Returns precision, recall and F1 of all entities together; None where none is there and none was told."""
        return _rates(self.right.total(), self.there.total(), self.told.total())

    def by_kind(self) -> list[dict[str, Any]]:
        """Returns for each kind how many entities there are, and the same rates."""
        kinds = sorted(self.there.keys() | self.told.keys())
        return [
            {"entity": kind, "entities": self.there[kind]} | _rates(self.right[kind], self.there[kind], self.told[kind])
            for kind in kinds
        ]


def _rates(right: int, there: int, told: int) -> dict[str, float | None]:
    """Where only one of the two has entities, what is divided by the other's number is 0, as seqeval gives it."""
    if not there + told:
        return {"precision": None, "recall": None, "f1": None}
    return {"precision": right / max(1, told), "recall": right / max(1, there), "f1": 2 * right / (there + told)}
