"""What preparing texts and preparing images have in common: the corpus, scratch files, reading it into parts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.store import writing
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import digest
from trainwright.core.spelling import counted
from trainwright.launch.jobs import run_jobs
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.arrange import RELABELLED, SPLITS
from trainwright.stages.data.corpus.checked import changed_file
from trainwright.stages.data.corpus.digests import CACHE, Corpus, input_digest, read_corpus
from trainwright.stages.data.corpus.entries import SkippedFile
from trainwright.stages.data.funnel import Funnel, total
from trainwright.stages.data.parts import publish_json, read_json
from trainwright.stages.data.read import ReadJob, Unit, read_unit
from trainwright.stages.data.stratified import missing

LAYOUT = "layout.json"
"""Says which corpus, recipe and buckets the parts beside it are of; without it they are not taken up."""
MAX_BUCKET_BITS = 12


@dataclass(slots=True)
class Preparation:
    """One run of the stage: what the phases share.

    Args:
        section: the recipe's data section.
        out: the directory of the dataset.
        events: where it reports.
        root: the workspace.
        digests: what the artefact's address is made of.
    """

    section: DataSection
    out: Path
    events: Events
    root: Path
    digests: Mapping[str, str]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def parts(self) -> Path:
        """Scratch files; dropped when the artefact is complete."""
        return self.out / ".parts"

    def timed(self, phase: str, work: partial[Any]) -> Any:
        """Returns what the work gives; keeps how long it took under the phase's name."""
        begin = time.perf_counter()
        result = work()
        self.seconds[phase] = time.perf_counter() - begin
        return result

    def corpus(self) -> Corpus:
        """Returns the corpus that the artefact's address is made of, and no other."""
        corpus = read_corpus(self.section, cache=self.root / CACHE)
        if self.digests.get("corpus", input_digest(corpus, self.section)) != input_digest(corpus, self.section):
            if corpus.changed:
                raise changed_file(corpus.changed[0], "another digest")
            raise DataError(
                "files of the corpus came, went or became unreadable while its digest was taken",
                fix="run the same command again, and leave the corpus alone until it ends",
            )
        for reason in sorted({file.reason for file in corpus.skipped}):
            names = [file.name for file in corpus.skipped if file.reason == reason]
            self.events.message(f"skipped {counted(len(names), 'file')}: {reason} ({', '.join(names[:3])})")
        return corpus

    def open_parts(self, corpus: Corpus, bits: int) -> None:
        """Keep the parts of an interrupted run, unless they were cut another way or from another corpus."""
        identity = self.section.model_dump(mode="json", exclude={"exec"})
        layout = {"identity": digest([identity, input_digest(corpus, self.section)]), "bucket_bits": bits}
        if read_json(self.parts / LAYOUT) != layout:
            shutil.rmtree(self.parts, ignore_errors=True)
            with writing(self.parts):
                self.parts.mkdir(parents=True)
            publish_json(self.parts / LAYOUT, layout)
        for leftover in self.parts.glob("*.tmp"):
            leftover.unlink(missing_ok=True)

    def read(self, units: Sequence[Unit], bits: int, workers: int) -> None:
        """Reads and cleans the units that are not read yet.

        Raises:
            TrainwrightError: as ``read_unit``.
        """
        read, corpus_bytes = 0, sum(unit.size_bytes for unit in units)

        def show(_: ReadJob, size_bytes: int) -> None:
            nonlocal read
            read += size_bytes
            self.events.progress("data: read and clean", read, total=corpus_bytes, unit="B")

        jobs = [ReadJob(unit=unit, section=self.section, bucket_bits=bits, directory=self.parts) for unit in units]
        run_jobs(read_unit, jobs, workers=workers, on_done=show)

    def check_splits(
        self, funnels: Sequence[Funnel], kept: Mapping[str, int], skipped: Sequence[SkippedFile]
    ) -> list[str]:
        """Returns the splits to write; tells what was lost on the way.

        Args:
            funnels: of each source.
            kept: the documents of each split.
            skipped: files that were left out of the corpus, and told.

        Raises:
            DataError: nothing is left, or nothing of a split that has a share.
        """
        funnel = total(funnels)
        if not funnel.kept.documents:
            reasons = {reason: tally.documents for reason, tally in (funnel.broken | funnel.dropped).items()}
            worst = max(reasons, key=lambda reason: reasons[reason], default="none was found")
            unread = next((f"data.sources.{n}" for n, each in enumerate(funnels) if worst in each.broken), None)
            raise DataError(
                "no document is left of this corpus",
                where=unread,
                seen=f"{counted(funnel.read.documents, 'record')}, most of them: {worst}",
                fix="loosen data.clean, or check data.sources"
                if unread is None
                else "mend its files, or check its keys",
            )
        for reason, tally in sorted(funnel.broken.items()):
            if reason in {file.reason for file in skipped}:
                continue
            places = next(f.examples[reason] for f in funnels if reason in f.examples)
            self.events.message(
                f"skipped {counted(tally.documents, 'broken record')}: {reason} ({', '.join(places[:3])})"
            )
        if funnel.relabelled.documents:
            places = [place for each in funnels for place in each.examples.get(RELABELLED, ())]
            self.events.message(
                f"dropped {counted(funnel.relabelled.documents, 'document')} equal to an earlier one that has another "
                f"label ({', '.join(places[:3])})"
            )
        shares = self.section.split
        wanted = [split for split in SPLITS if getattr(shares, split) > 0]
        for split in wanted:
            if not kept[split]:
                raise DataError(
                    "the {split} split is empty",
                    seen=f"{counted(funnel.kept.documents, 'document')}, {getattr(shares, split):.3g} of them for it",
                    fix=_more_documents(split),
                    split=split,
                )
        return wanted

    def tell_missing(self, classes: Mapping[str, Mapping[str, int]]) -> None:
        """Names each class that a split with a share has no document of; ``classes`` are counts by split and class."""
        shares = self.section.split
        unit = "word" if self.section.records == "words" else "document"
        for line in missing(classes, [split for split in SPLITS if getattr(shares, split) > 0], unit):
            self.events.message(line)


def _more_documents(split: str) -> str:
    """Returns what fills an empty split, or does without it; every run trains, and the shares must still sum to 1."""
    advice = f"add documents, or raise data.split.{split}"
    if split == "train":
        return advice
    return f"{advice}, or set it to 0, add its share to data.split.train and leave {split} out of evaluate.splits"
