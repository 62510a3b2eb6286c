"""Phase 2: parts -> deduplicated documents in hash order, one file per bucket and split."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.spec.sections.corpus.labels import LabelForm
from trainwright.spec.sections.data import DataSection, SplitSection
from trainwright.stages.data.funnel import EXAMPLES, Funnel
from trainwright.stages.data.parts import TERMINATOR, Document, publish, publish_json, read_json, read_section
from trainwright.stages.data.sources.labels import names_in

SPLITS = ("train", "validation", "test")
DUPLICATE, RELABELLED = "duplicate", "relabelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrangeJob:
    """One bucket: where its documents lie, in the corpus's order, as (source, part, offset, length).

    ``splits`` are those of its units where the documents are labelled; None where each document's hash decides.
    """

    bucket: int
    pieces: tuple[tuple[int, Path, int, int], ...]
    section: DataSection
    directory: Path
    splits: Mapping[bytes, str] | None = None

    def split_of(self, document: Document) -> str:
        """Returns the split of a document of the bucket."""
        return split_of(side(document), self.section.split) if self.splits is None else self.splits[unit_of(document)]


def split_of(digest: bytes, shares: SplitSection) -> str:
    """Returns the split that a document's ``side`` decides: the same for ever, however the corpus grows.

    Bytes 8 to 16 of the sha256 decide; the first ones order the documents, and order and split stay independent.
    """
    point, border = int.from_bytes(digest[8:16], "big") / 2**64, 0.0
    wanted = [split for split in SPLITS if getattr(shares, split) > 0]
    for split in wanted[:-1]:
        border += getattr(shares, split)
        if point < border:
            return split
    return wanted[-1]


def side(document: Document) -> bytes:
    """Returns the sha256 that decides a document's split: of its group, so that one stays together, or its content."""
    return document.digest if document.group is None else hashlib.sha256(document.group.encode()).digest()


def unit_of(document: Document) -> bytes:
    """Returns what names the unit of a document that is never parted: its ``side``, begun at the bytes that decide."""
    digest = side(document)
    return digest[8:] + digest[:8]


def documents_path(directory: Path, bucket: int, split: str) -> Path:
    """Where the documents of a bucket and split lie."""
    return directory / f"bucket-{bucket:05d}.{split}.docs"


def labels_path(directory: Path, bucket: int, split: str) -> Path:
    """Where their labels lie, in the same order: a JSON list."""
    return directory / f"bucket-{bucket:05d}.{split}.labels.json"


def places_path(directory: Path, bucket: int, split: str) -> Path:
    """Where the places of chats lie, in the same order: a JSON list of source and place."""
    return directory / f"bucket-{bucket:05d}.{split}.places.json"


def bucket_path(directory: Path, bucket: int) -> Path:
    """Returns what a bucket holds; its presence says that the bucket is complete."""
    return directory / f"bucket-{bucket:05d}.json"


def arrange_bucket(job: ArrangeJob) -> dict[str, Any]:
    """Sort, deduplicate and split a bucket; returns its counts.

    Of equal documents the first one in the corpus's order (source, file, record) is kept.

    Raises:
        MachineError: the disk is full.
    """
    done = read_json(bucket_path(job.directory, job.bucket))
    if done is not None:
        return dict(done)
    kept, funnels = _kept(job)
    splits: dict[str, list[Document]] = {split: [] for split in SPLITS}
    places: dict[str, list[tuple[int, str]]] = {split: [] for split in SPLITS}
    for source, document in kept:
        split = job.split_of(document)
        splits[split].append(document)
        places[split].append((source, document.place))
    for split, documents in splits.items():
        publish(
            documents_path(job.directory, job.bucket, split),
            (piece for document in documents for piece in (document.text, TERMINATOR)),
        )
        if job.section.labelled:
            labels = [document.label for document in documents]
            publish_json(labels_path(job.directory, job.bucket, split), labels)
        if job.section.records != "documents":  # of which encoding may drop some, and names them
            publish_json(places_path(job.directory, job.bucket, split), places[split])
    facts = {
        "funnels": {str(source): funnel.to_json() for source, funnel in funnels.items()},
        "splits": {
            split: {"documents": len(documents), "bytes": sum(len(document.text) for document in documents)}
            for split, documents in splits.items()
        },
        "classes": {
            split: Counter(name for document in documents for name in _names(document, job.section.label_kind))
            for split, documents in splits.items()
        },
    }
    publish_json(bucket_path(job.directory, job.bucket), facts)
    return facts


def _names(document: Document, kind: LabelForm) -> Sequence[str]:
    """Returns the labels of a document: none, one, those of its set or of its words; a number is no label to count."""
    if document.label is None or kind == "number":
        return ()
    if kind == "words":
        labels: list[str] = json.loads(document.label)
        return labels
    return names_in([document.label]) if kind == "names" else (document.label,)


def _kept(job: ArrangeJob) -> tuple[list[tuple[int, Document]], dict[int, Funnel]]:
    """Returns the bucket's documents, each after its source, in order of the digest.

    Texts of duplicates are never in memory, be they many.
    """
    exact = job.section.dedup == "exact"
    kept: list[tuple[int, Document]] = []
    labels: dict[bytes, str | None] = {}
    funnels: dict[int, Funnel] = {}
    duplicates: dict[tuple[int, str], list[tuple[bytes, int, str]]] = {}
    documents = (
        (source, document)
        for source, path, offset, length in job.pieces
        for document in read_section(path, offset, length)
    )
    for number, (source, document) in enumerate(documents):
        funnel = funnels.setdefault(source, Funnel())
        if exact and document.digest in labels:
            funnel.duplicates.add(len(document.text))
            reasons = [DUPLICATE]
            if document.label != labels[document.digest]:
                funnel.relabelled.add(len(document.text))
                reasons.append(RELABELLED)
            for reason in reasons:
                examples = duplicates.setdefault((source, reason), [])
                examples.append((document.digest, number, document.place))
                if len(examples) > 100 * EXAMPLES:
                    examples[:] = heapq.nsmallest(EXAMPLES, examples)
        else:
            funnel.kept.add(len(document.text))
            labels[document.digest] = document.label
            kept.append((source, document))
    kept.sort(
        key=lambda pair: pair[1].digest
    )  # stable: without deduplication equal documents stay in the corpus's order
    for (source, reason), examples in duplicates.items():
        for _, _, place in heapq.nsmallest(EXAMPLES, examples):
            funnels[source].example(reason, place)
    return kept, funnels
