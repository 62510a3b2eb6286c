"""The data funnel: how many documents and bytes went in, were dropped for which reason, and came out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 5
"""Examples kept of each reason, the first ones in the corpus's order."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """A number of documents and their size."""

    documents: int = 0
    bytes: int = 0

    def add(self, size_bytes: int, documents: int = 1) -> None:
        """Count documents."""
        self.documents += documents
        self.bytes += size_bytes

    def to_json(self) -> dict[str, int]:
        """As plain values."""
        return {"documents": self.documents, "bytes": self.bytes}


@dataclass(kw_only=True, slots=True)
class Funnel:
    """What became of one source's records: ``read = broken + dropped + duplicates + kept``, in documents.

    Bytes are those of a record as read (a line, a file, a value); of duplicates and kept ones, of the cleaned text.
    ``broken`` records could not be read; ``dropped`` ones were read and refused. ``relabelled`` are those duplicates
    that have another label than the document that is kept in their place.
    """

    read: Tally = field(default_factory=Tally)
    broken: dict[str, Tally] = field(default_factory=dict)
    dropped: dict[str, Tally] = field(default_factory=dict)
    duplicates: Tally = field(default_factory=Tally)
    relabelled: Tally = field(default_factory=Tally)
    kept: Tally = field(default_factory=Tally)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def lose(self, into: dict[str, Tally], reason: str, size_bytes: int, where: str) -> None:
        """Count a broken or dropped record."""
        into.setdefault(reason, Tally()).add(size_bytes)
        self.example(reason, where)

    def refuse(self, reason: str, size_bytes: int, where: str) -> None:
        """Count a document that was kept so far as dropped."""
        self.kept.add(-size_bytes, -1)
        self.lose(self.dropped, reason, size_bytes, where)

    def example(self, reason: str, where: str) -> None:
        """Remember where it happened, the first few times."""
        places = self.examples.setdefault(reason, [])
        if len(places) < EXAMPLES:
            places.append(where)

    def merge(self, other: Funnel) -> None:
        """Add what came later in the corpus."""
        for name in ("read", "duplicates", "relabelled", "kept"):
            theirs = getattr(other, name)
            getattr(self, name).add(theirs.bytes, theirs.documents)
        for mine_by, theirs_by in ((self.broken, other.broken), (self.dropped, other.dropped)):
            for reason, tally in theirs_by.items():
                mine_by.setdefault(reason, Tally()).add(tally.bytes, tally.documents)
        for reason, places in other.examples.items():
            for where in places:
                self.example(reason, where)

    def to_json(self) -> dict[str, Any]:
        """As plain values; reasons by falling count."""

        def ordered(by_reason: dict[str, Tally]) -> dict[str, dict[str, int]]:
            ranked = sorted(by_reason.items(), key=lambda item: (-item[1].documents, item[0]))
            return {reason: tally.to_json() for reason, tally in ranked}

        relabelled = {"relabelled": self.relabelled.to_json()} if self.relabelled.documents else {}
        return {
            "read": self.read.to_json(),
            "broken": ordered(self.broken),
            "dropped": ordered(self.dropped),
            "duplicates": self.duplicates.to_json(),
            **relabelled,
            "kept": self.kept.to_json(),
            "examples": {reason: self.examples[reason] for reason in sorted(self.examples)},
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Funnel:
        """From the plain values of ``to_json``."""
        return cls(
            read=Tally(**record["read"]),
            broken={reason: Tally(**tally) for reason, tally in record["broken"].items()},
            dropped={reason: Tally(**tally) for reason, tally in record["dropped"].items()},
            duplicates=Tally(**record["duplicates"]),
            relabelled=Tally(**record.get("relabelled", {})),
            kept=Tally(**record["kept"]),
            examples={reason: list(places) for reason, places in record["examples"].items()},
        )


def total(funnels: Iterable[Funnel]) -> Funnel:
    """Returns all sources together."""
    everything = Funnel()
    for funnel in funnels:
        everything.merge(funnel)
    return everything
