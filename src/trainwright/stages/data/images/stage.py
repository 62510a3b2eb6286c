"""The data stage of images: corpus -> pixels -> deduplicate -> split by class -> shards of bytes, with a report.

::

    files --units--> parts --buckets--> images in hash order --shares of each class--> <split>-NNNNN.tokens

Reading is that of texts: workers, parts that an interruption keeps, records that are broken. The pixels of a bucket at
most are in memory; of every image its digest and its class are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from trainwright.artifact.shard_writer import SplitEntry, image_writer, write_image_dataset
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.summaries import ImageSummary
from trainwright.core.records import to_json
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.sections.data import ImagesSection
from trainwright.stages.data.corpus.size import corpus_bytes
from trainwright.stages.data.images.moments import Moments
from trainwright.stages.data.images.splits import Seen
from trainwright.stages.data.parts import Document, read_section
from trainwright.stages.data.preparation import LAYOUT, MAX_BUCKET_BITS, Preparation
from trainwright.stages.data.read import Unit, finished_parts, plan_units, read_funnels
from trainwright.stages.data.report import image_report, publish_report
from trainwright.stages.data.workers import worker_count


def run(context: Context) -> StageResult:
    """Prepare ``recipe.data`` of images; raises as the stage does for texts."""
    return _Images(context.recipe.data, context.out, context.events, context.root, context.digests).run()


@dataclass(slots=True)
class _Images(Preparation):
    """One run of the stage over images."""

    pieces: list[list[tuple[int, Path, int, int]]] = field(default_factory=list)

    @property
    def form(self) -> ImagesSection:
        """How they are stored."""
        assert self.section.images is not None
        return self.section.images

    def run(self) -> StageResult:
        """Returns what the manifest says, once the dataset is written."""
        started = time.perf_counter()
        corpus = self.corpus()
        stored_bytes, units = corpus_bytes(self.section), plan_units(corpus.files, self.section)
        workers = worker_count(self.section.exec.workers, stored_bytes)
        bits = min((max(stored_bytes - 1, 0) // self.section.exec.part_bytes).bit_length(), MAX_BUCKET_BITS)
        self.open_parts(corpus, bits)
        self.timed("read", partial(self.read, units, bits, workers))
        self._find(units, bits)
        seen = self.timed("arrange", partial(self._seen))
        funnels = read_funnels(self.parts, units, corpus.skipped, len(self.section.sources))
        seen.add_to(funnels)
        split_by_digest = seen.splits(self.section.split)
        classes = seen.counts(split_by_digest)
        kept = {split: sum(counts.values()) for split, counts in classes.items()}
        splits = self.check_splits(funnels, kept, corpus.skipped)
        self.tell_missing(classes)
        write = partial(self._write, splits, split_by_digest, seen.names)
        entries, form = self.timed("write", write)
        publish_report(self.out, image_report(self.section, funnels, entries, form, classes))
        # From here on the parts are deleted: a run that is killed meanwhile must not take the rest of them up.
        (self.parts / LAYOUT).unlink(missing_ok=True)
        self.seconds["total"] = time.perf_counter() - started
        summary = ImageSummary(
            images={split: entry.documents for split, entry in entries.items()},
            classes=len(seen.names),
            size=form.size,
            channels=form.channels,
        )
        phases = {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
        execution = {"workers": workers, "files": len(corpus.files), "buckets": 1 << bits, "phase_seconds": phases}
        return StageResult(summary=to_json(summary), execution=execution)

    def _find(self, units: Sequence[Unit], bits: int) -> None:
        """Notes where the parts have the images of each bucket, in the corpus's order."""
        self.pieces = [[] for _ in range(1 << bits)]
        for unit in units:
            for path, footer in zip(*finished_parts(self.parts, unit.number), strict=True):
                for bucket, (offset, length) in footer["sections"].items():
                    self.pieces[bucket].append((unit.source, path, offset, length))

    def _bucket(self, number: int) -> Iterator[tuple[int, Document]]:
        for source, path, offset, length in self.pieces[number]:
            yield from ((source, image) for image in read_section(path, offset, length))

    def _seen(self) -> Seen:
        seen = Seen(exact=self.section.dedup == "exact")
        for number in range(len(self.pieces)):
            seen.bucket(self._bucket(number))
        return seen

    def _write(
        self, splits: Sequence[str], split_by_digest: Mapping[bytes, str], names: Sequence[str]
    ) -> tuple[dict[str, SplitEntry], ImageForm]:
        """Writes the shards and ``dataset.json``; returns the splits' entries and the form of the images."""
        number_of = {name: number for number, name in enumerate(names)}
        writers = {split: image_writer(self.out, split) for split in splits}
        again, moments = Seen(exact=self.section.dedup == "exact"), Moments(channels=self.form.channels)
        for number in range(len(self.pieces)):
            for image in again.bucket(self._bucket(number)):
                split, values = split_by_digest[image.digest], np.frombuffer(image.text, np.uint8)
                length, label = np.array([len(values)], np.uint64), number_of[str(image.label)]
                writers[split].extend(values, length, length, labels=np.array([label], np.uint16))
                if split == "train":
                    moments.add(values)
            self.events.progress("data: write images", number + 1, total=len(self.pieces), unit="buckets")
        entries = {split: writer.close() for split, writer in writers.items()}
        form = ImageForm(size=self.form.size, channels=self.form.channels, mean=moments.mean, std=moments.std)
        write_image_dataset(self.out, form, splits=entries, labels=names)
        return entries, form
