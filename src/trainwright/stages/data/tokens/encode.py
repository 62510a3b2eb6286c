"""Phase 4: documents -> ids, bucket by bucket, then one stream of shards for each split."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.shard_files import open_shard, token_dtype
from trainwright.artifact.shard_writer import SplitEntry, SplitWriter, write_dataset, write_shard
from trainwright.artifact.shards import ANSWERED, DOCUMENTS, NUMBERS, WORDS
from trainwright.core.errors import DataError
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.sections.corpus.labels import LabelForm
from trainwright.stages.data.arrange import documents_path, labels_path
from trainwright.stages.data.parts import publish_json, read_documents, read_json
from trainwright.stages.data.sources.labels import names_in
from trainwright.stages.data.tokens.encoders import Encoder, EncoderName, load_encoder
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts

_BATCH_BYTES = 4 << 20
MOST_LABELS = 1 << 16
"""Different ones of documents: each has a number of 16 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodeJob:
    """One bucket of all splits and the tokenizer to encode it with."""

    bucket: int
    splits: tuple[str, ...]
    tokenizer: Path
    encoder: EncoderName
    facts: TokenizerFacts
    lossless: bool
    directory: Path


def encoded_path(directory: Path, bucket: int) -> Path:
    """Says that a bucket is encoded, and how many documents do not come back from their ids."""
    return directory / f"ids-{bucket:05d}.json"


def ids_stem(directory: Path, bucket: int, split: str) -> Path:
    """Where the shard of a bucket and split lies, without a suffix."""
    return directory / f"ids-{bucket:05d}.{split}"


def encode_bucket(job: EncodeJob) -> int:
    """Encode a bucket and decode it again; returns how many documents did not come back byte for byte.

    Raises:
        DataError: ``lossless`` and a document does not come back.
        MachineError: the disk is full.
    """
    done = read_json(encoded_path(job.directory, job.bucket))
    if done is not None:
        return int(done["lossy"])
    encoder = load_encoder(job.encoder, job.tokenizer)
    dtype = token_dtype(job.facts.vocabulary)
    end = np.array([job.facts.end_of_text_id], dtype)
    lossy = 0
    for split in job.splits:
        texts = read_documents(documents_path(job.directory, job.bucket, split))
        pieces: list[Any] = []
        lengths: list[int] = []
        for text, ids in _encoded(encoder, texts):
            if encoder.decode(ids) != text:
                lossy += 1
            pieces += [ids.astype(dtype), end]
            lengths.append(len(ids) + 1)
        if lossy and job.lossless:
            raise DataError("the trained tokenizer does not give every document back", where=job.tokenizer)
        ends = np.cumsum(lengths, dtype=np.uint64)
        write_shard(
            ids_stem(job.directory, job.bucket, split), pieces, ends, np.array([len(t) for t in texts], np.uint64)
        )
    publish_json(encoded_path(job.directory, job.bucket), {"lossy": lossy})
    return lossy


def _encoded(encoder: Encoder, texts: Sequence[bytes]) -> Iterator[tuple[bytes, Any]]:
    batch: list[bytes] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_BYTES:
            yield from zip(batch, encoder.encode(batch), strict=True)
            batch, size = [], 0
    yield from zip(batch, encoder.encode(batch), strict=True)


def assemble(
    out: Path,
    directory: Path,
    *,
    buckets: int,
    splits: Sequence[str],
    end_of_text: str,
    facts: TokenizerFacts,
    shard_tokens: int,
    labelled: LabelForm | None = None,
    tags: Sequence[str] = (),
    kind: str = DOCUMENTS,
) -> dict[str, SplitEntry]:
    """Join the buckets in order into the dataset's shards; returns the splits' entries of ``dataset.json``.

    ``labelled`` says what a document's label is; None where there are none; ``tags`` are the names of words' labels.

    Raises:
        MachineError: the disk is full.
        DataError: there are more labels, or sets of labels, than numbers for them; or the numbers of documents are too
            large to be averaged.
    """
    entries = {}
    dtype = token_dtype(facts.vocabulary)
    read = partial(_labels, directory, buckets)
    named = labelled in ("name", "names")
    names = sorted({label for split in splits for part in read(split) for label in part}) if named else list(tags)
    check_count(names, out)
    index = {name: number for number, name in enumerate(names)}
    for split in splits:
        writer = SplitWriter(
            out, split, vocabulary=facts.vocabulary, end_of_text_id=facts.end_of_text_id, shard_tokens=shard_tokens
        )
        labels = read(split) if labelled else itertools.repeat(None)
        for bucket, part in zip(range(buckets), labels, strict=False):
            shard = open_shard(
                ids_stem(directory, bucket, split), dtype, answered=kind in ANSWERED, tagged=kind == WORDS
            )
            numbers = None if part is None else _numbers(part, index if named else None)
            bits = None if shard.answers is None else np.unpackbits(shard.answers, bitorder="little")
            flags = None if bits is None else bits[: len(shard.tokens)].astype(np.bool_)
            beside: dict[str, Any] = {"labels": numbers, "answers": flags, "tags": shard.tags}
            writer.extend(shard.tokens, shard.ends, shard.text_bytes, **beside)
        entries[split] = writer.close()
    write_dataset(
        out,
        vocabulary=facts.vocabulary,
        end_of_text=end_of_text,
        end_of_text_id=facts.end_of_text_id,
        splits=entries,
        **(_named(names, labelled) if labelled != "number" else {"scale": _scale(read, splits, out)}),
        kind=kind if labelled != "number" else NUMBERS,
    )
    return entries


def _numbers(labels: Sequence[str], index: Mapping[str, int] | None) -> NDArray[np.uint16] | NDArray[np.float64]:
    """Returns the number of each label, or the number that each label is."""
    if index is None:
        return np.array([float(label) for label in labels], np.float64)
    return np.array([index[label] for label in labels], np.uint16)


def _scale(read: Callable[[str], Iterator[list[str]]], splits: Sequence[str], where: Path) -> TargetScale | None:
    """Returns the scale of the train split's numbers; None where it has none."""
    numbers = [float(label) for part in read("train") for label in part] if "train" in splits else []
    scale = TargetScale.of(numbers) if numbers else None
    if scale is not None and not isfinite(scale.std):
        largest = max(numbers, key=abs)
        raise DataError("the numbers of the documents are too large to be averaged", where=where, seen=largest)
    return scale


def _named(labels: Sequence[str], kind: LabelForm | None) -> dict[str, Any]:
    """Returns what ``dataset.json`` says of labels by number: their names, or which of some names are in each set."""
    if kind != "names" or not labels:
        return {"labels": labels}
    names = names_in(labels)
    number_of = {name: number for number, name in enumerate(names)}
    return {"labels": names, "label_sets": [[number_of[name] for name in json.loads(each)] for each in labels]}


def check_count(labels: Sequence[str], where: Path) -> None:
    """Checks that there is a number for each label.

    Raises:
        DataError: there are more.
    """
    if len(labels) > MOST_LABELS:
        raise DataError(
            "too many different labels, or sets of labels, for one dataset",
            where=where,
            seen=f"{len(labels):,}",
            expected=f"at most {MOST_LABELS:,}",
            fix="check that label_key or label_column names a class and no number or text",
        )


def _labels(directory: Path, buckets: int, split: str) -> Iterator[list[str]]:
    """Yields the labels of a split's documents, a list for each bucket."""
    return (json.loads(labels_path(directory, bucket, split).read_bytes()) for bucket in range(buckets))
