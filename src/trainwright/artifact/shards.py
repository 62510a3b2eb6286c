"""Token shards: a dataset's documents as token ids in flat files, read through memory maps.

A dataset directory holds ``dataset.json``, ``tokenizer.json`` and, for each split, ``<split>-NNNNN.tokens`` (ids and
nothing else), ``<split>-NNNNN.index`` (where documents end, how many bytes of text each was) and, where documents have
labels, ``<split>-NNNNN.labels``, where they have numbers, ``<split>-NNNNN.numbers``, where they are chats,
``<split>-NNNNN.answers``, where their words have labels, ``<split>-NNNNN.tags``. The layout and its invariants are
written down in ``docs/formats/token-shards.md``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.model_folder import TARGET_SCALE, TOKENIZER, read_target_scale
from trainwright.artifact.shard_files import NO_TAG, PIXEL, REMAKE, Shard, Tokens, open_shard, token_dtype
from trainwright.core.errors import DataError
from trainwright.core.records import from_json
from trainwright.core.spelling import counted
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.parts.targets import TargetScale

DATASET = "dataset.json"
DOCUMENTS, LABELLED, CHATS, PREFERENCES = "documents", "documents-with-labels", "chats", "preferences"
LABEL_SETS, NUMBERS, WORDS, IMAGES = "documents-with-label-sets", "documents-with-numbers", "words", "images"
"""Kinds of datasets: texts, texts of which each has a label, chats, chats of which each has two last answers; texts of
which each has any number of labels, or a number; sentences of words with a label each; images.

An image is a document whose tokens are the values of its pixels; each has a label."""
VALUES = 256
"""The vocabulary of pixels: what a byte can be."""
ANSWERED = (CHATS, PREFERENCES)
"""Kinds that say of each token whether it belongs to an answer."""
FORMAT = 1
"""Version of the layout, in ``dataset.json``."""


class TokenSplit:
    """The tokens of one split as one sequence, over all its shards. Positions are counted from its start.

    Attributes:
        name: "train", "validation" or "test".
        tokens: how many, end-of-text ids included.
        documents: how many.
        text_bytes: UTF-8 bytes of all cleaned texts, for bits per byte.
    """

    def __init__(self, name: str, shards: Sequence[Shard], *, vocabulary: int, dtype: np.dtype[Any]) -> None:
        self.name = name
        self._shards = tuple(shards)
        self._vocabulary = vocabulary
        self._dtype = dtype
        self._starts = list(itertools.accumulate((len(shard.tokens) for shard in shards), initial=0))
        self.tokens = self._starts[-1]
        self.documents = sum(len(shard.ends) for shard in shards)

    @cached_property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all the split's texts."""
        return sum(int(shard.text_bytes.sum()) for shard in self._shards)

    def read(self, start: int, stop: int) -> Tokens:
        """Ids of positions ``start`` to ``stop``: shape ``[stop - start]``, the dataset's own unsigned type, a copy.

        Raises:
            DataError: an id is not in the vocabulary; names the shard and the position.
            IndexError: the range leaves the split.
        """
        out: Tokens = np.empty(self._checked(start, stop), self._dtype)
        for shard, begin, low, high in self._overlaps(start, stop):
            out[begin + low - start : begin + high - start] = shard.tokens[low:high]
            self._check_ids(shard, low, high)
        return out

    def document_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        """For each position the document it belongs to, counted from the first one's: shape ``[stop - start]``.

        An end-of-text id belongs to the document that it ends.

        Raises:
            IndexError: the range leaves the split.
        """
        lengths: list[NDArray[np.int64]] = []
        self._checked(start, stop)
        for shard, _, low, high in self._overlaps(start, stop):
            first = int(np.searchsorted(shard.ends, np.uint64(low), side="right"))
            last = int(np.searchsorted(shard.ends, np.uint64(high), side="left"))
            ends = np.minimum(shard.ends[first : last + 1].astype(np.int64), high)
            lengths.append(np.diff(ends, prepend=low))
        counts = np.concatenate(lengths) if lengths else np.empty(0, np.int64)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @cached_property
    def document_ends(self) -> NDArray[np.uint64]:
        """For each document the position just after its end-of-text id: shape ``[documents]``, ascending."""
        if len(self._shards) == 1:
            return self._shards[0].ends
        parts = [shard.ends + np.uint64(start) for shard, start in zip(self._shards, self._starts, strict=False)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    @cached_property
    def document_bytes(self) -> NDArray[np.uint64]:
        """For each document the UTF-8 bytes of its text: shape ``[documents]``."""
        if len(self._shards) == 1:
            return self._shards[0].text_bytes
        return np.concatenate([shard.text_bytes for shard in self._shards] or [np.empty(0, np.uint64)])

    @cached_property
    def document_labels(self) -> NDArray[np.uint16]:
        """For each document the number of its label, or its set of them: shape ``[documents]``; where there are any."""
        return np.concatenate([np.empty(0, np.uint16), *(s.labels for s in self._shards if s.labels is not None)])

    @cached_property
    def document_numbers(self) -> NDArray[np.float64]:
        """For each document the number that it has: shape ``[documents]``; where they have any."""
        return np.concatenate([np.empty(0, np.float64), *(s.numbers for s in self._shards if s.numbers is not None)])

    def answers(self, start: int, stop: int) -> NDArray[np.bool_]:
        """For each position whether its token belongs to an answer: shape ``[stop - start]``; of chats alone.

        Raises:
            IndexError: the range leaves the split.
        """
        out = np.zeros(self._checked(start, stop), np.bool_)
        for shard, begin, low, high in self._overlaps(start, stop):
            if shard.answers is not None:
                bits = np.unpackbits(shard.answers[low // 8 : -(-high // 8)], bitorder="little")
                out[begin + low - start : begin + high - start] = bits[low % 8 : low % 8 + high - low]
        return out

    def tags(self, start: int, stop: int) -> NDArray[np.uint16]:
        """For each position the number of the label that begins there: shape ``[stop - start]``, else ``NO_TAG``.

        Raises:
            IndexError: the range leaves the split.
        """
        out = np.full(self._checked(start, stop), NO_TAG, np.uint16)
        for shard, begin, low, high in self._overlaps(start, stop):
            if shard.tags is not None:
                out[begin + low - start : begin + high - start] = shard.tags[low:high]
        return out

    def _checked(self, start: int, stop: int) -> int:
        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"positions {start}..{stop} of split {self.name!r}, which has {self.tokens} tokens")
        return stop - start

    def _overlaps(self, start: int, stop: int) -> list[tuple[Shard, int, int, int]]:
        """Shards that overlap the range: (shard, its start in the split, first and last position in the shard)."""
        overlaps = []
        for shard, begin in zip(self._shards, self._starts, strict=False):
            low, high = max(start - begin, 0), min(stop - begin, len(shard.tokens))
            if low < high:
                overlaps.append((shard, begin, low, high))
        return overlaps

    def _check_ids(self, shard: Shard, low: int, high: int) -> None:
        ids = shard.tokens[low:high]
        if int(ids.max()) >= self._vocabulary:
            at = low + int(np.argmax(ids >= self._vocabulary))
            raise DataError(
                "damaged token shard: an id outside the vocabulary",
                where=f"{shard.path}, token {at}",
                seen=int(shard.tokens[at]),
                expected=f"below {self._vocabulary}",
                fix=REMAKE,
            )


@dataclass(frozen=True, kw_only=True)
class TokenDataset:
    """A prepared corpus: its splits and what the ids mean."""

    path: Path
    vocabulary: int
    end_of_text: str
    end_of_text_id: int
    dtype: np.dtype[Any]
    splits: Mapping[str, TokenSplit]
    tokenizer_path: Path
    labels: tuple[str, ...] = ()
    """Names of the labels, by number; empty where documents have none."""
    label_sets: tuple[tuple[int, ...], ...] = ()
    """Of ``documents-with-label-sets`` the numbers of the labels in each set, by the set's number."""
    scale: TargetScale | None = None
    """Of ``documents-with-numbers`` in what they are learnt; None where no document is in the train split."""
    kind: str = DOCUMENTS
    """What a task may expect of the documents."""
    images: ImageForm | None = None
    """How images are stored; None where documents are texts. Images have no tokenizer and no token between them."""

    @classmethod
    def open(cls, path: Path) -> TokenDataset:
        """Map the dataset at ``path``; checks structure, not digests (``Artifact.verify`` does that).

        Raises:
            DataError: no dataset, an unknown layout, or a shard that contradicts ``dataset.json``.
        """
        source = path / DATASET
        if not source.is_file():
            raise DataError("no dataset here", where=path, expected=f"a directory with {DATASET}")
        try:
            record = json.loads(source.read_text(encoding="utf-8"))
            layout, vocabulary, kind = record["format"], int(record["vocabulary"]), str(record.get("kind", DOCUMENTS))
            form = from_json(ImageForm, record["images"], where=str(source)) if kind == IMAGES else None
            dtype = token_dtype(vocabulary) if form is None else PIXEL
            end_of_text: Any = record["end_of_text"] if form is None else {"text": "", "id": -1}
            if layout != FORMAT or record["dtype"] != dtype.name:
                raise DataError(
                    "unknown layout of a dataset",
                    where=source,
                    seen=f"format {layout}, {record['dtype']}",
                    expected=f"format {FORMAT}, {dtype.name}",
                )
            labels = tuple(record.get("labels", ()))
            splits = {
                name: _open_split(
                    path,
                    name,
                    entry["shards"],
                    vocabulary=vocabulary,
                    dtype=dtype,
                    labelled=(bool(labels) and kind != WORDS) or kind == LABEL_SETS,
                    numbered=kind == NUMBERS,
                    answered=kind in ANSWERED,
                    tagged=kind == WORDS,
                )
                for name, entry in record["splits"].items()
            }
            return cls(
                path=path,
                vocabulary=vocabulary,
                end_of_text=end_of_text["text"],
                end_of_text_id=end_of_text["id"],
                dtype=dtype,
                splits=MappingProxyType(splits),
                tokenizer_path=path / (record["tokenizer"] if form is None else TOKENIZER),
                labels=labels,
                label_sets=tuple(map(tuple, record.get("label_sets", ()))),
                scale=read_target_scale(path) if (path / TARGET_SCALE).is_file() else None,
                kind=kind,
                images=form,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError("damaged dataset description", where=source, seen=repr(error), fix=REMAKE) from error


def _open_split(
    path: Path,
    name: str,
    entries: Sequence[Mapping[str, int]],
    *,
    vocabulary: int,
    dtype: np.dtype[Any],
    labelled: bool,
    numbered: bool,
    answered: bool,
    tagged: bool,
) -> TokenSplit:
    shards = []
    for number, entry in enumerate(entries):
        stem = path / f"{name}-{number:05d}"
        shard = open_shard(stem, dtype, labelled=labelled, numbered=numbered, answered=answered, tagged=tagged)
        seen = f"{counted(len(shard.tokens), 'token')}, {counted(len(shard.ends), 'document')}"
        expected = f"{counted(entry['tokens'], 'token')}, {counted(entry['documents'], 'document')}"
        if seen != expected:
            what = f"a token shard contradicts {DATASET}"
            raise DataError(what, where=shard.path, seen=seen, expected=expected, fix=REMAKE)
        shards.append(shard)
    return TokenSplit(name, shards, vocabulary=vocabulary, dtype=dtype)
