"""Phase 4 of sentences: text -> ids, and at the first id of each word the number of its label."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from trainwright.artifact.events import Events
from trainwright.artifact.shard_files import NO_TAG, token_dtype
from trainwright.artifact.shard_writer import write_shard
from trainwright.core.errors import DataError
from trainwright.core.spelling import counted
from trainwright.model.conventions import read_tokenizer
from trainwright.model.tasks.words.entities import is_broken, scheme_of
from trainwright.stages.data.arrange import documents_path, labels_path, places_path
from trainwright.stages.data.chats.encode import merge
from trainwright.stages.data.funnel import EXAMPLES, Funnel
from trainwright.stages.data.parts import publish_json, read_documents, read_json
from trainwright.stages.data.tokens.encode import check_count, encoded_path, ids_stem
from trainwright.stages.data.tokens.encoders import EncoderChoice
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts
from trainwright.stages.data.words.records import text_of, words_of
from trainwright.stages.data.workers import run_buckets

ENCODER = EncoderChoice(encoder="tokenizers", reason="it says where in a text each token stands", checked_documents=0)
NO_TOKEN = "no word begins a token"


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsJob:
    """One bucket of all splits, and how its sentences become tokens; ``labels`` are the names by number."""

    bucket: int
    splits: tuple[str, ...]
    tokenizer: Path
    facts: TokenizerFacts
    labels: tuple[str, ...]
    directory: Path


def encode_words(job: WordsJob) -> dict[str, Any]:
    """Encode a bucket; returns what became of its sentences.

    These are ``dropped`` by source and ``kept`` by split, as of chats; ``broken`` sentences and some of their
    ``places``; and how many ``words`` begin no token.

    Raises:
        MachineError: the disk is full.
    """
    done = read_json(encoded_path(job.directory, job.bucket))
    if done is not None:
        return dict(done)
    found = _Found()
    kept = {split: _encode_split(job, split, found) for split in job.splits}
    dropped = {str(source): funnel.to_json() for source, funnel in found.dropped.items()}
    facts = {"kept": kept, "dropped": dropped, "broken": found.broken, "places": found.places, "words": found.words}
    publish_json(encoded_path(job.directory, job.bucket), facts)
    return facts


class _Found:
    """What is said of a bucket's sentences."""

    def __init__(self) -> None:
        self.dropped: dict[int, Funnel] = {}
        self.broken = 0
        self.places: list[str] = []
        self.words = 0


def _encode_split(job: WordsJob, split: str, found: _Found) -> int:
    """Writes the shard of a bucket and split; returns how many sentences are in it."""
    forms = read_documents(documents_path(job.directory, job.bucket, split))
    labels = json.loads(labels_path(job.directory, job.bucket, split).read_bytes())
    places = json.loads(places_path(job.directory, job.bucket, split).read_bytes())
    number_of = {name: number for number, name in enumerate(job.labels)}
    scheme, dtype = scheme_of(job.labels), token_dtype(job.facts.vocabulary)
    pieces: list[Any] = []
    tags: list[NDArray[np.uint16]] = []
    sizes: list[int] = []
    for form, label, (source, place) in zip(forms, labels, places, strict=True):
        words, names = words_of(form), words_of(label)
        ids, here, lost = tagged(_tokenizer(str(job.tokenizer)), words, [number_of[name] for name in names])
        if lost == len(words):
            found.dropped.setdefault(source, Funnel()).refuse(NO_TOKEN, len(form), place)
            continue
        found.words += lost
        if scheme is not None and is_broken(names, scheme):
            found.broken += 1
            found.places = [*found.places, place][:EXAMPLES]
        pieces.append(np.append(ids, job.facts.end_of_text_id).astype(dtype))
        tags.append(np.append(here, np.uint16(NO_TAG)))
        sizes.append(len(text_of(words).encode()))
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.uint64)
    write_shard(ids_stem(job.directory, job.bucket, split), pieces, ends, np.array(sizes, np.uint64), tags=tags)
    return len(sizes)


def tagged(
    tokenizer: Tokenizer, words: Sequence[str], numbers: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.uint16], int]:
    """Returns the ids of a sentence's text, a tag for each, and how many words begin no token.

    A word begins at the first token with a character of it that has no character of a word before.
    """
    encoding = tokenizer.encode(text_of(words), add_special_tokens=False)
    tags = np.full(len(encoding.ids), NO_TAG, np.uint16)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    lost, token, offsets, passed = 0, 0, encoding.offsets, _of_no_word(encoding)
    for word, number in enumerate(numbers):
        first, stop = int(starts[word]), int(starts[word + 1]) - 1
        while token < len(offsets) and (token in passed or offsets[token][1] <= first):
            token += 1
        # A byte-level token has the space before a word; one that has more than that is of the word before, too.
        if token < len(offsets) and first - 1 <= offsets[token][0] < stop:
            tags[token] = number
        else:
            lost += 1
    return np.array(encoding.ids, np.int64), tags, lost


def _of_no_word(encoding: Encoding) -> frozenset[int]:
    """Returns the tokens without a character, and those that only say that a word begins: ``▁``, as of SentencePiece.

    The last token is none of the latter: no word is behind it.
    """
    last = len(encoding.ids) - 1
    each = enumerate(zip(encoding.tokens, encoding.offsets, strict=True))
    return frozenset(place for place, (token, (start, end)) in each if start == end or (token == "▁" and place < last))


@lru_cache(maxsize=1)
def _tokenizer(path: str) -> Tokenizer:
    """Returns a tokenizer, kept for the next bucket that this process encodes."""
    return read_tokenizer(Path(path))


def encode_sentences(jobs: Sequence[WordsJob], funnels: Sequence[Funnel], events: Events, *, workers: int) -> None:
    """Encodes all sentences; adds to each source's funnel what was dropped, and tells what is wrong with labels.

    Raises:
        DataError: there are more labels than numbers for them, or no sentence of a split is left.
        MachineError: the disk is full.
    """
    labels = jobs[0].labels
    check_count((*labels, "none"), jobs[0].directory.parent)

    facts = run_buckets(encode_words, jobs, events, workers=workers)
    kept = merge(funnels, facts)
    broken, lost = (sum(each[name] for each in facts) for name in ("broken", "words"))
    if broken:
        places = ", ".join([place for each in facts for place in each["places"]][:3])
        events.message(
            f"{counted(broken, 'sentence')} with labels that are of no whole entity of {scheme_of(labels)} ({places}): "
            "they are learnt as they are"
        )
    if lost:
        events.message(f"{counted(lost, 'word')} without a token of its own: the label is not learnt")
    for split, count in kept.items():
        if not count:
            raise DataError(
                "no sentence of the {split} split is left", seen=NO_TOKEN, fix="take another tokenizer", split=split
            )
