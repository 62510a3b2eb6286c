"""What there is of images, by class and split: equal ones are never in two splits."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.arrange import DUPLICATE, RELABELLED, SPLITS
from trainwright.stages.data.funnel import EXAMPLES, Funnel
from trainwright.stages.data.parts import Document
from trainwright.stages.data.stratified import classes_of_splits, splits_of


@dataclass(kw_only=True, slots=True)
class Seen:
    """What one pass over the images found, without their pixels.

    Attributes:
        exact: of equal images the first in the corpus's order is kept; else all are, each with its own class.
        labels: the classes of the images that are kept, by the digest of their pixels; the first one's first.
        funnels: what became of those of each source after they were read.
    """

    exact: bool
    labels: dict[bytes, list[str]] = field(default_factory=dict)
    funnels: dict[int, Funnel] = field(default_factory=dict)
    _examples: dict[tuple[int, str], list[tuple[bytes, int, str]]] = field(default_factory=dict)

    def bucket(self, images: Iterable[tuple[int, Document]]) -> list[Document]:
        """Counts the images of a bucket, each after its source; returns those that are kept in the order of digests."""
        kept: list[Document] = []
        for number, (source, image) in enumerate(images):
            funnel, labels = self.funnels.setdefault(source, Funnel()), self.labels.setdefault(image.digest, [])
            if self.exact and labels:
                funnel.duplicates.add(len(image.text))
                self._example(source, DUPLICATE, image, number)
                if image.label != labels[0]:
                    funnel.relabelled.add(len(image.text))
                    self._example(source, RELABELLED, image, number)
                continue
            funnel.kept.add(len(image.text))
            labels.append(str(image.label))
            kept.append(image)
        return sorted(kept, key=lambda image: image.digest)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the classes, sorted."""
        return tuple(sorted({label for labels in self.labels.values() for label in labels}))

    def splits(self, shares: SplitSection) -> dict[bytes, str]:
        """Returns the split of each image by its digest; of classes as ``stratified.splits_of`` says."""
        return splits_of({digest: Counter(labels) for digest, labels in self.labels.items()}, shares)

    def counts(self, split_by_digest: Mapping[bytes, str]) -> dict[str, dict[str, int]]:
        """Returns how many images of each class each split has."""
        counts = {split: Counter[str]() for split in SPLITS}
        for digest, labels in self.labels.items():
            counts[split_by_digest[digest]].update(labels)
        return classes_of_splits(counts)

    def _example(self, source: int, reason: str, image: Document, number: int) -> None:
        places = self._examples.setdefault((source, reason), [])
        places.append((image.digest, number, image.place))
        places[:] = heapq.nsmallest(EXAMPLES, places)

    def add_to(self, funnels: Sequence[Funnel]) -> None:
        """Adds to what reading counted of each source what became of its images."""
        for (source, reason), places in self._examples.items():
            for _, _, place in places:
                self.funnels[source].example(reason, place)
        for source, funnel in self.funnels.items():
            funnels[source].merge(funnel)
