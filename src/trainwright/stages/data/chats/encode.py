"""Phase 4 of chats: messages -> template -> ids with their answers; a chat that does not fit is dropped and counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trainwright.artifact.shard_files import token_dtype
from trainwright.artifact.shard_writer import write_shard
from trainwright.model.chats.answers import ChatEncoder, Encoded, Unfit
from trainwright.model.chats.template import ChatTemplate
from trainwright.model.conventions import read_tokenizer
from trainwright.stages.data.arrange import documents_path, places_path
from trainwright.stages.data.chats.records import chats_of
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import publish_json, read_documents, read_json
from trainwright.stages.data.tokens.encode import encoded_path, ids_stem


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatJob:
    """One bucket of all splits, and how its chats become tokens; ``only_last``: of each the last answer counts."""

    bucket: int
    splits: tuple[str, ...]
    tokenizer: Path
    vocabulary: int
    template: ChatTemplate
    max_tokens: int | None
    only_last: bool
    directory: Path


def encode_chats(job: ChatJob) -> dict[str, Any]:
    """Encode a bucket; returns what became of its chats: ``dropped`` by source, and ``kept`` by split.

    Raises:
        MachineError: the disk is full.
    """
    done = read_json(encoded_path(job.directory, job.bucket))
    if done is not None:
        return dict(done)
    encoder = _encoder(job)
    dropped: dict[int, Funnel] = {}
    kept = {split: _encode_split(job, encoder, split, dropped) for split in job.splits}
    facts = {"kept": kept, "dropped": {str(source): funnel.to_json() for source, funnel in dropped.items()}}
    publish_json(encoded_path(job.directory, job.bucket), facts)
    return facts


def _encode_split(job: ChatJob, encoder: ChatEncoder, split: str, dropped: dict[int, Funnel]) -> int:
    """Writes the shard of a bucket and split; returns how many records are in it."""
    forms = read_documents(documents_path(job.directory, job.bucket, split))
    places = json.loads(places_path(job.directory, job.bucket, split).read_bytes())
    chats: list[Encoded] = []
    kept = 0
    for form, (source, place) in zip(forms, places, strict=True):
        try:
            chats += _encoded(encoder, form.decode(), job.max_tokens)
            kept += 1
        except Unfit as reason:
            dropped.setdefault(source, Funnel()).refuse(str(reason), len(form), place)
    dtype = token_dtype(job.vocabulary)
    write_shard(
        ids_stem(job.directory, job.bucket, split),
        [chat.ids.astype(dtype) for chat in chats],
        np.cumsum([len(chat.ids) for chat in chats], dtype=np.uint64),
        np.array([chat.text_bytes for chat in chats], np.uint64),
        answers=[chat.answers for chat in chats],
    )
    return kept


def _encoded(encoder: ChatEncoder, form: str, max_tokens: int | None) -> list[Encoded]:
    chats = [encoder(messages) for messages in chats_of(form)]
    if max_tokens is not None and max(len(chat.ids) for chat in chats) > max_tokens:
        raise Unfit(f"over {max_tokens} tokens")
    return chats


def _encoder(job: ChatJob) -> ChatEncoder:
    """Returns the encoder of a job, kept for the next bucket that this process encodes."""
    template = job.template
    special = tuple(sorted(template.special_tokens.items()))
    return _made(str(job.tokenizer), template.text, template.source, special, job.only_last)


@lru_cache(maxsize=1)
def _made(tokenizer: str, text: str, source: str, special: tuple[tuple[str, str], ...], only_last: bool) -> ChatEncoder:
    template = ChatTemplate(text=text, source=source, special_tokens=dict(special))
    return ChatEncoder(read_tokenizer(Path(tokenizer)), template, only_last=only_last)


def merge(funnels: Sequence[Funnel], facts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Adds to each source's funnel what encoding dropped of it; returns how many records of each split are left."""
    kept: dict[str, int] = {}
    for each in facts:
        for source, record in each["dropped"].items():
            funnels[int(source)].merge(Funnel.from_json(record))
        for split, count in each["kept"].items():
            kept[split] = kept.get(split, 0) + count
    return kept
