"""Phase 4 of pairs: each text of a record becomes a document of ids, one behind the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from trainwright.artifact.events import Events
from trainwright.artifact.shard_files import token_dtype
from trainwright.artifact.shard_writer import write_shard
from trainwright.core.errors import DataError
from trainwright.core.spelling import counted
from trainwright.model.conventions import read_tokenizer
from trainwright.stages.data.arrange import documents_path, places_path
from trainwright.stages.data.chats.encode import merge
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import publish_json, read_documents, read_json
from trainwright.stages.data.tokens.encode import encoded_path, ids_stem
from trainwright.stages.data.tokens.encoders import EncoderChoice
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts
from trainwright.stages.data.words.records import words_of
from trainwright.stages.data.workers import run_buckets

ENCODER = EncoderChoice(encoder="tokenizers", reason="texts of pairs are short", checked_documents=0)
NO_TOKEN = "a text without a token"


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsJob:
    """One bucket of all splits, and how its texts become tokens."""

    bucket: int
    splits: tuple[str, ...]
    tokenizer: Path
    facts: TokenizerFacts
    directory: Path


def encode_pairs(job: PairsJob) -> dict[str, Any]:
    """Encode a bucket; returns what became of its records: ``dropped`` by source, and ``kept`` by split.

    Raises:
        MachineError: the disk is full.
    """
    done = read_json(encoded_path(job.directory, job.bucket))
    if done is not None:
        return dict(done)
    dropped: dict[int, Funnel] = {}
    kept = {split: _encode_split(job, split, dropped) for split in job.splits}
    facts = {"kept": kept, "dropped": {str(source): funnel.to_json() for source, funnel in dropped.items()}}
    publish_json(encoded_path(job.directory, job.bucket), facts)
    return facts


def _encode_split(job: PairsJob, split: str, dropped: dict[int, Funnel]) -> int:
    """Writes the shard of a bucket and split; returns how many records are in it."""
    forms = read_documents(documents_path(job.directory, job.bucket, split))
    places = json.loads(places_path(job.directory, job.bucket, split).read_bytes())
    tokenizer, dtype = _tokenizer(job.tokenizer), token_dtype(job.facts.vocabulary)
    pieces: list[Any] = []
    sizes: list[int] = []
    kept = 0
    for form, (source, place) in zip(forms, places, strict=True):
        texts = words_of(form)
        encoded = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
        if not all(encoded):
            dropped.setdefault(source, Funnel()).refuse(NO_TOKEN, len(form), place)
            continue
        pieces += [np.array([*ids, job.facts.end_of_text_id], dtype) for ids in encoded]
        sizes += [len(text.encode()) for text in texts]
        kept += 1
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.uint64)
    write_shard(ids_stem(job.directory, job.bucket, split), pieces, ends, np.array(sizes, np.uint64))
    return kept


@lru_cache(maxsize=1)
def _tokenizer(path: Path) -> Tokenizer:
    """Returns a tokenizer, kept for the next bucket that this process encodes."""
    return read_tokenizer(path)


def encode_all_pairs(jobs: Sequence[PairsJob], funnels: Sequence[Funnel], events: Events, *, workers: int) -> None:
    """Encodes all records; adds to each source's funnel what was dropped on the way, and tells it.

    Raises:
        DataError: no record of a split is left.
        MachineError: the disk is full.
    """
    facts = run_buckets(encode_pairs, jobs, events, workers=workers)
    kept = merge(funnels, facts)
    lost = sum(tally.documents for funnel in funnels for reason, tally in funnel.dropped.items() if reason == NO_TOKEN)
    if lost:
        events.message(f"dropped {counted(lost, 'pair')}: {NO_TOKEN}")
    for split, count in kept.items():
        if not count:
            raise DataError(
                "no pair of the {split} split is left", seen=NO_TOKEN, fix="take another tokenizer", split=split
            )
