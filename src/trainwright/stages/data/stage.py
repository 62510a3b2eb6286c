"""The data stage: corpus -> clean -> deduplicate -> split -> tokenizer -> token shards, with a report.

::

    files --units--> parts --buckets--> documents in hash order --tokenizer--> ids --join--> <split>-NNNNN.tokens
                     (1)                (2)                     (3)           (4)

Each arrow writes scratch files under ``out/.parts`` that appear complete or not at all; an interrupted run takes them
up. Every step is a function of the corpus and the recipe's identity: workers, part sizes and interruptions never
change a byte of the result. No step holds more than a part or a bucket in memory, so that the corpus may be larger;
of labelled documents the split holds a hash and a class of each, some 430 bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.shard_writer import SHARD_TOKENS, SplitEntry
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically, writing
from trainwright.artifact.summaries import DataSummary
from trainwright.core.fingerprint import file_digest
from trainwright.core.paths import local_path
from trainwright.core.records import to_json
from trainwright.core.registry import load
from trainwright.launch.jobs import run_apart, run_jobs
from trainwright.model.chats.template import ChatTemplate
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.arrange import SPLITS, ArrangeJob, arrange_bucket, documents_path
from trainwright.stages.data.chats.cleaning import cleaner_of
from trainwright.stages.data.chats.phase import ENCODER, chat_jobs, encode_all, said_in, template_of
from trainwright.stages.data.corpus.checked import changed_file
from trainwright.stages.data.corpus.digests import Corpus, tokenizer_digest
from trainwright.stages.data.corpus.size import text_bytes as text_bytes_of
from trainwright.stages.data.funnel import Funnel, total
from trainwright.stages.data.pairs.encode import ENCODER as PAIRS_ENCODER
from trainwright.stages.data.pairs.encode import PairsJob, encode_all_pairs
from trainwright.stages.data.parts import publish_json, read_json
from trainwright.stages.data.preparation import LAYOUT, MAX_BUCKET_BITS, Preparation
from trainwright.stages.data.read import Unit, finished_parts, plan_units, read_funnels
from trainwright.stages.data.report import build_report, publish_report
from trainwright.stages.data.stratified import classes_of_splits, splits_of_buckets
from trainwright.stages.data.tokens.encode import EncodeJob, assemble, encode_bucket
from trainwright.stages.data.tokens.encoders import EncoderChoice, EncoderName, choose_encoder
from trainwright.stages.data.tokens.sample import first_texts, training_sample
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts, TrainedTokenizer, tokenizer_facts, train_tokenizer
from trainwright.stages.data.words.encode import ENCODER as WORDS_ENCODER
from trainwright.stages.data.words.encode import WordsJob, encode_sentences
from trainwright.stages.data.words.records import texts_in
from trainwright.stages.data.workers import worker_count

LISTED = ("words", "pairs")
"""Records whose form is a list of texts."""
IMAGES = "trainwright.stages.data.images.stage:run"
"""Prepares images; loaded where sources give them."""


def run(context: Context) -> StageResult:
    """Prepare ``recipe.data``.

    Raises:
        DataError: the corpus is missing, empty or unreadable, nothing is left of it, a split is empty, or ``strict``
            and a record is broken.
        MachineError: the disk is full, or a package is missing.
    """
    if context.recipe.data.images is not None:
        result: StageResult = load(IMAGES, kind="stage")(context)
        return result
    return _Texts(context.recipe.data, context.out, context.events, context.root, context.digests).run()


@dataclass(kw_only=True, slots=True)
class _Arranged:
    """The corpus after phase 2."""

    funnels: list[Funnel]
    splits: dict[str, dict[str, int]]
    classes: dict[str, dict[str, int]]

    def tags(self, section: DataSection) -> tuple[str, ...]:
        """Returns the names of the labels of words, in the order of their numbers; none where words have no labels."""
        names = {name for each in self.classes.values() for name in each} if section.records == "words" else ()
        return tuple(sorted(names))


@dataclass(slots=True)
class _Texts(Preparation):
    """One run of the stage over texts or chats."""

    def run(self) -> StageResult:
        """Returns all phases."""
        started = time.perf_counter()
        cleaner_of(self.section)  # a misspelt filter is reported before any work
        template = template_of(self.section)
        corpus = self.corpus()
        tokenizer_sha256 = tokenizer_digest(self.section)
        files = corpus.files
        units = plan_units(files, self.section)
        text_bytes = sum(map(text_bytes_of, files))
        workers = worker_count(self.section.exec.workers, text_bytes)
        bits = min((max(text_bytes - 1, 0) // self.section.exec.part_bytes).bit_length(), MAX_BUCKET_BITS)
        self.open_parts(corpus, bits)
        arranged = self._arranged(corpus, units, bits, workers)
        counts = {split: tally["documents"] for split, tally in arranged.splits.items()}
        splits = self.check_splits(arranged.funnels, counts, corpus.skipped)
        trained, facts = self.timed("tokenizer", partial(self._tokenizer, bits, tokenizer_sha256))
        choice, lossy = self._ids(bits, splits, facts, arranged, template=template, workers=workers)
        entries = self.timed("assemble", partial(self._assemble, bits, splits, facts, arranged.tags(self.section)))
        report = build_report(
            self.section, arranged.funnels, entries, facts, trained, lossy=lossy, classes=arranged.classes
        )
        publish_report(self.out, report)
        # From here on the parts are deleted: a run that is killed meanwhile must not take the rest of them up.
        (self.parts / LAYOUT).unlink(missing_ok=True)
        self.seconds["total"] = time.perf_counter() - started
        kept = total(arranged.funnels).kept
        encoding = {"engine": choice.encoder, "reason": choice.reason, "checked_documents": choice.checked_documents}
        summary = DataSummary(
            vocabulary=facts.vocabulary,
            documents=kept.documents,
            bytes=kept.bytes,
            tokens={split: entry.tokens for split, entry in entries.items()},
            bytes_per_token=report["tokenizer"]["bytes_per_token"],
        )
        return StageResult(
            summary=to_json(summary),
            execution={
                "workers": workers,
                "files": len(files),
                "corpus_bytes": sum(file.size_bytes for file in files),
                "buckets": 1 << bits,
                "phase_seconds": {phase: round(seconds, 3) for phase, seconds in self.seconds.items()},
                "encode_bytes_per_s": round(kept.bytes / max(self.seconds["encode"], 1e-9)),
                "tokenizer_training": None
                if trained is None
                else {"engine": trained.trainer, "reason": trained.reason},
                "encoding": encoding,
            },
        )

    # ------------------------------------------------------------------------------------------------- phases 1 and 2
    def _arranged(self, corpus: Corpus, units: Sequence[Unit], bits: int, workers: int) -> _Arranged:
        done = read_json(self.parts / "arranged.json")
        if done is None:
            self.timed("read", partial(self.read, units, bits, workers))
            done = self.timed("arrange", partial(self._arrange, corpus, units, bits, workers))
            publish_json(self.parts / "arranged.json", done)
        for part in self.parts.glob("read-*.part"):  # everything in them is in the buckets now
            part.unlink()
        self.tell_missing(done["classes"])
        funnels = [Funnel.from_json(record) for record in done["funnels"]]
        return _Arranged(funnels=funnels, splits=done["splits"], classes=done["classes"])

    def _arrange(self, corpus: Corpus, units: Sequence[Unit], bits: int, workers: int) -> dict[str, Any]:
        pieces: list[list[tuple[int, Path, int, int]]] = [[] for _ in range(1 << bits)]
        for unit in units:
            for path, footer in zip(*finished_parts(self.parts, unit.number), strict=True):
                for bucket, (offset, length) in footer["sections"].items():
                    pieces[bucket].append((unit.source, path, offset, length))
        arranged = 0

        def show(_: ArrangeJob, facts: Mapping[str, Any]) -> None:
            nonlocal arranged
            arranged += 1
            self.events.progress("data: deduplicate and split", arranged, total=1 << bits, unit="buckets")

        of_units: Sequence[Mapping[bytes, str] | None] = [None] * len(pieces)
        if self.section.labelled and self.section.label_kind == "name":
            of_units = splits_of_buckets(pieces, self.section.split, exact=self.section.dedup == "exact")
        jobs = [
            ArrangeJob(bucket=bucket, pieces=tuple(found), section=self.section, directory=self.parts, splits=units)
            for bucket, (found, units) in enumerate(zip(pieces, of_units, strict=True))
        ]
        counts = run_jobs(arrange_bucket, jobs, workers=workers, on_done=show)
        funnels = read_funnels(self.parts, units, corpus.skipped, len(self.section.sources))
        splits = {split: {"documents": 0, "bytes": 0} for split in SPLITS}
        classes = {split: Counter[str]() for split in SPLITS}
        for facts in counts:
            for source, record in facts["funnels"].items():
                funnels[int(source)].merge(Funnel.from_json(record))
            for split, tally in facts["splits"].items():
                splits[split]["documents"] += tally["documents"]
                splits[split]["bytes"] += tally["bytes"]
            for split, tally in facts["classes"].items():
                classes[split].update(tally)
        return {
            "funnels": [funnel.to_json() for funnel in funnels],
            "splits": splits,
            "classes": classes_of_splits(classes),
        }

    # ------------------------------------------------------------------------------------------------- phases 3 and 4
    def _documents(self, bits: int, split: str) -> list[Path]:
        return [documents_path(self.parts, bucket, split) for bucket in range(1 << bits)]

    def _tokenizer(self, bits: int, tokenizer_sha256: str | None) -> tuple[TrainedTokenizer | None, TokenizerFacts]:
        rules = self.section.tokenizer
        target = self.out / TOKENIZER
        trained = None
        if rules.path is not None:
            source = local_path(rules.path)
            tokenizer_facts(source, end_of_text=rules.end_of_text)
            with writing(target):
                write_atomically(target, source.read_bytes())
            if file_digest(target) != tokenizer_sha256:
                raise changed_file(str(source), "another sha256")
        else:
            done = read_json(self.parts / TOKENIZER)
            if done is None or not target.is_file():
                self.events.progress("data: train tokenizer", 0, total=1)
                done = self._train_tokenizer(bits, target)
                publish_json(self.parts / TOKENIZER, done)
            trained = TrainedTokenizer(vocabulary=done["vocabulary"], trainer=done["engine"], reason=done["reason"])
            self.events.progress("data: train tokenizer", 1, total=1)
            if trained.vocabulary < rules.vocabulary:
                self.events.message(
                    f"the corpus is too small for a vocabulary of {rules.vocabulary:,}: it has {trained.vocabulary:,}"
                )
        return trained, tokenizer_facts(target, end_of_text=rules.end_of_text)

    def _train_tokenizer(self, bits: int, target: Path) -> dict[str, Any]:
        documents: Iterable[Path] = self._documents(bits, "train")
        if self.section.records != "documents":
            documents = (texts_in if self.section.records in LISTED else said_in)(documents, self.parts)
        sample = training_sample(documents, self.section.tokenizer.sample_bytes, self.parts)
        trained = train_tokenizer(self.section.tokenizer, sample, target)
        if trained.trainer != "gigatoken":
            self.events.message(f"the tokenizer was trained with tokenizers: {trained.reason}")
        return {"vocabulary": trained.vocabulary, "engine": trained.trainer, "reason": trained.reason}

    def _ids(
        self,
        bits: int,
        splits: Sequence[str],
        facts: TokenizerFacts,
        arranged: _Arranged,
        *,
        template: ChatTemplate | None,
        workers: int,
    ) -> tuple[EncoderChoice, int | None]:
        """Turns texts, chats, sentences or pairs into ids; returns by what, and how many texts do not come back."""
        tokenizer, records = self.out / TOKENIZER, self.section.records
        if template is None and records not in LISTED:
            choice: EncoderChoice = self.timed("check", partial(self._encoder, bits))
            encode = partial(self._encode, bits, splits, facts, encoder=choice.encoder, workers=workers)
            lossy: int = self.timed("encode", partial(encode, all_bytes=total(arranged.funnels).kept.bytes))
            return choice, lossy
        work: partial[None]
        if template is not None:
            chats = chat_jobs(
                self.section, template, tokenizer, facts, splits=splits, parts=self.parts, buckets=1 << bits
            )
            work = partial(encode_all, chats, arranged.funnels, self.events, workers=workers)
        else:
            how: dict[str, Any] = {"splits": tuple(splits), "directory": self.parts, "facts": facts}
            how |= {"tokenizer": tokenizer}
            told = arranged.funnels, self.events
            if records == "pairs":
                pairs = [PairsJob(bucket=number, **how) for number in range(1 << bits)]
                work = partial(encode_all_pairs, pairs, *told, workers=workers)
            else:
                how["labels"] = arranged.tags(self.section)
                jobs = [WordsJob(bucket=number, **how) for number in range(1 << bits)]
                work = partial(encode_sentences, jobs, *told, workers=workers)
        self.timed("encode", work)
        if template is not None:
            template.write(self.out)
        return (WORDS_ENCODER if records == "words" else ENCODER if template is not None else PAIRS_ENCODER), None

    def _encoder(self, bits: int) -> EncoderChoice:
        choice = run_apart(partial(choose_encoder, self.out / TOKENIZER), first_texts(self._documents(bits, "train")))
        if choice.encoder != "gigatoken":
            self.events.message(f"tokenizing with tokenizers, which is slower: {choice.reason}")
        return choice

    def _encode(
        self,
        bits: int,
        splits: Sequence[str],
        facts: TokenizerFacts,
        *,
        encoder: EncoderName,
        workers: int,
        all_bytes: int,
    ) -> int:
        done_bytes = 0.0

        def show(_: EncodeJob, __: int) -> None:
            nonlocal done_bytes
            done_bytes += all_bytes / (1 << bits)
            self.events.progress("data: tokenize", done_bytes, total=all_bytes, unit="B")

        jobs = [
            EncodeJob(
                bucket=bucket,
                splits=tuple(splits),
                tokenizer=self.out / TOKENIZER,
                encoder=encoder,
                facts=facts,
                lossless=self.section.tokenizer.kind == "byte-bpe",
                directory=self.parts,
            )
            for bucket in range(1 << bits)
        ]
        lossy = sum(run_jobs(encode_bucket, jobs, workers=workers, on_done=show, apart=True))
        if lossy:
            self.events.message(f"documents that do not come back byte for byte from this tokenizer's ids: {lossy:,}")
        return lossy

    def _assemble(
        self, bits: int, splits: Sequence[str], facts: TokenizerFacts, tags: Sequence[str]
    ) -> dict[str, SplitEntry]:
        return assemble(
            self.out,
            self.parts,
            buckets=1 << bits,
            splits=splits,
            end_of_text=self.section.tokenizer.end_of_text,
            facts=facts,
            shard_tokens=SHARD_TOKENS,
            labelled=self.section.label_kind if self.section.labelled and not tags else None,
            tags=tags,
            kind=self.section.records,
        )
