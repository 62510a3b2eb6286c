"""Writes the token shards of a dataset (``docs/formats/token-shards.md``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.model_folder import IMAGE_PROCESSOR, TARGET_SCALE, TOKENIZER
from trainwright.artifact.shard_files import HEADER, MAGIC, NO_TAG, PIXEL, Tokens, token_dtype
from trainwright.artifact.shards import DATASET, DOCUMENTS, FORMAT, IMAGES, LABEL_SETS, LABELLED, VALUES, WORDS
from trainwright.artifact.store import write_atomically, writing
from trainwright.core.records import to_json
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.parts.targets import TargetScale

SHARD_TOKENS = 1 << 29
"""A shard is closed by the document that reaches this many tokens (1 GiB of 16-bit ids)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """What ``dataset.json`` says of a shard."""

    tokens: int
    documents: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitEntry:
    """What ``dataset.json`` says of a split."""

    tokens: int
    documents: int
    text_bytes: int
    shards: tuple[ShardEntry, ...]


def write_shard(
    stem: Path,
    tokens: Sequence[Tokens],
    ends: NDArray[np.uint64],
    text_bytes: NDArray[np.uint64],
    labels: NDArray[np.uint16] | NDArray[np.float64] | None = None,
    *,
    answers: Sequence[NDArray[np.bool_]] | None = None,
    tags: Sequence[NDArray[np.uint16]] | None = None,
) -> None:
    """Write ``<stem>.tokens``, what stands beside tokens and documents, and ``<stem>.index`` atomically, that last.

    Args:
        stem: path without a suffix.
        tokens: pieces of the id stream, in order, already of the dataset's type.
        ends: for each document the position just after its end-of-text id.
        text_bytes: for each document the UTF-8 bytes of its text.
        labels: for each document the number of its label (``<stem>.labels``), or the number that it has itself
            (``<stem>.numbers``); None where documents have none.
        answers: pieces of a flag for each id, whether it belongs to an answer; None where documents are no chats.
        tags: pieces of a number for each id, of the label of the word that begins there; None where words have none.

    Raises:
        MachineError: the disk is full or cannot be written.
    """
    path = stem.with_name(stem.name + ".tokens")
    with writing(path):
        write_atomically(path, *(np.ascontiguousarray(piece).data for piece in tokens))
        if labels is not None:
            suffix, stored = (".numbers", "<f8") if labels.dtype == np.float64 else (".labels", "<u2")
            write_atomically(stem.with_name(stem.name + suffix), labels.astype(stored).tobytes())
        if answers is not None:
            flags = np.concatenate([np.empty(0, np.bool_), *answers])
            write_atomically(stem.with_name(stem.name + ".answers"), np.packbits(flags, bitorder="little").tobytes())
        if tags is not None:
            flat = np.concatenate([np.empty(0, np.uint16), *tags])
            write_atomically(stem.with_name(stem.name + ".tags"), flat.astype("<u2").tobytes())
        index = HEADER.pack(MAGIC, len(ends)) + ends.astype("<u8").tobytes() + text_bytes.astype("<u8").tobytes()
        write_atomically(stem.with_name(stem.name + ".index"), index)


class SplitWriter:
    """Appends documents to the shards of one split.

    Args:
        directory: the dataset's directory.
        name: the split's name.
        vocabulary: every id is below it.
        end_of_text_id: appended to each document.
        shard_tokens: a shard is closed by the document that reaches this many tokens.
        dtype: of what is stored; None: the smallest for the vocabulary.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        vocabulary: int,
        end_of_text_id: int,
        shard_tokens: int = SHARD_TOKENS,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._directory = directory
        self._name = name
        self._dtype = token_dtype(vocabulary) if dtype is None else dtype
        self._end_of_text = np.array([end_of_text_id], self._dtype)
        self._shard_tokens = shard_tokens
        self._shards: list[ShardEntry] = []
        self._text_bytes_total = 0
        self._start()

    def _start(self) -> None:
        self._pieces: list[Tokens] = []
        self._ends: list[NDArray[np.uint64]] = []
        self._bytes: list[NDArray[np.uint64]] = []
        self._labels: list[NDArray[Any]] = []
        self._answers: list[NDArray[np.bool_]] = []
        self._tags: list[NDArray[np.uint16]] = []
        self._tokens = 0

    def append(self, ids: NDArray[np.integer[Any]], *, text_bytes: int, label: int | float | None = None) -> None:
        """Add one document; the end-of-text id is added here. ``label``: its label's number, or as a float its own."""
        tokens = np.concatenate([np.asarray(ids).astype(self._dtype), self._end_of_text])
        dtype: Any = np.float64 if isinstance(label, float) else np.uint16
        labels: NDArray[Any] | None = None if label is None else np.array([label], dtype)
        self.extend(tokens, np.array([len(tokens)], np.uint64), np.array([text_bytes], np.uint64), labels=labels)

    def append_chat(self, ids: NDArray[np.integer[Any]], answers: NDArray[np.bool_], *, text_bytes: int) -> None:
        """Add one chat as its template gives it; ``answers`` flags the tokens that count."""
        tokens = np.asarray(ids).astype(self._dtype)
        self.extend(tokens, np.array([len(tokens)], np.uint64), np.array([text_bytes], np.uint64), answers=answers)

    def append_words(self, ids: NDArray[np.integer[Any]], tags: NDArray[np.uint16], *, text_bytes: int) -> None:
        """Add one sentence; ``tags`` has a number for each id; the end-of-text id, which has none, is added here."""
        tokens = np.concatenate([np.asarray(ids).astype(self._dtype), self._end_of_text])
        numbers = np.append(tags, np.uint16(NO_TAG))
        self.extend(tokens, np.array([len(tokens)], np.uint64), np.array([text_bytes], np.uint64), tags=numbers)

    def extend(
        self,
        tokens: Tokens,
        ends: NDArray[np.uint64],
        text_bytes: NDArray[np.uint64],
        *,
        labels: NDArray[np.uint16] | NDArray[np.float64] | None = None,
        answers: NDArray[np.bool_] | None = None,
        tags: NDArray[np.uint16] | None = None,
    ) -> None:
        """Add documents that already end with the end-of-text id; ``ends`` are positions in ``tokens``.

        Either every document of a split has a label (or a number, as float64), or none has; so too for ``answers``,
        a flag for each token of chats, which end as their template says, and for ``tags``, a number for each token.
        """
        first = 0
        while first < len(ends):
            begin = int(ends[first - 1]) if first else 0
            room = begin + max(self._shard_tokens - self._tokens, 1)
            last = min(int(np.searchsorted(ends, np.uint64(room))), len(ends) - 1)
            self._pieces.append(tokens[begin : int(ends[last])])
            self._ends.append(ends[first : last + 1] - np.uint64(begin) + np.uint64(self._tokens))
            self._bytes.append(text_bytes[first : last + 1])
            if labels is not None:
                self._labels.append(labels[first : last + 1])
            if answers is not None:
                self._answers.append(answers[begin : int(ends[last])])
            if tags is not None:
                self._tags.append(tags[begin : int(ends[last])])
            self._tokens += int(ends[last]) - begin
            if self._tokens >= self._shard_tokens:
                self._roll()
            first = last + 1

    def _roll(self) -> None:
        stem = self._directory / f"{self._name}-{len(self._shards):05d}"
        ends, text_bytes = np.concatenate(self._ends), np.concatenate(self._bytes)
        labels = np.concatenate(self._labels) if self._labels else None
        write_shard(
            stem, self._pieces, ends, text_bytes, labels, answers=self._answers or None, tags=self._tags or None
        )
        self._shards.append(ShardEntry(tokens=self._tokens, documents=len(ends)))
        self._text_bytes_total += int(text_bytes.sum())
        self._start()

    def close(self) -> SplitEntry:
        """Write the last shard; returns the split's entry."""
        if self._ends:
            self._roll()
        return SplitEntry(
            tokens=sum(shard.tokens for shard in self._shards),
            documents=sum(shard.documents for shard in self._shards),
            text_bytes=self._text_bytes_total,
            shards=tuple(self._shards),
        )


def write_dataset(
    directory: Path,
    *,
    vocabulary: int,
    end_of_text: str,
    end_of_text_id: int,
    splits: Mapping[str, SplitEntry],
    labels: Sequence[str] = (),
    label_sets: Sequence[Sequence[int]] = (),
    scale: TargetScale | None = None,
    kind: str = DOCUMENTS,
) -> None:
    """Write ``dataset.json``; ``splits`` are the entries that ``SplitWriter.close`` gave, ``labels`` their names.

    Where documents have sets of labels, ``label_sets`` has the numbers of the labels in each set. ``kind`` is that of
    documents without labels of their own: texts, chats or preferences, sentences whose words have the ``labels``, or
    texts with numbers, whose ``scale`` stands in a file of its own, which goes with a model.
    """
    record = {
        "format": FORMAT,
        "vocabulary": vocabulary,
        "dtype": token_dtype(vocabulary).name,
        "end_of_text": {"text": end_of_text, "id": end_of_text_id},
        "tokenizer": TOKENIZER,
        "splits": {name: to_json(entry) for name, entry in splits.items()},
    }
    if label_sets:
        record |= {"kind": LABEL_SETS, "labels": list(labels), "label_sets": [list(each) for each in label_sets]}
    elif labels:
        record |= {"kind": WORDS if kind == WORDS else LABELLED, "labels": list(labels)}
    elif kind != DOCUMENTS:
        record |= {"kind": kind}
    with writing(directory):
        if scale is not None:
            write_atomically(directory / TARGET_SCALE, json.dumps(to_json(scale), indent=1).encode() + b"\n")
        write_atomically(directory / DATASET, json.dumps(record, indent=1, ensure_ascii=False).encode() + b"\n")


def image_writer(directory: Path, name: str, *, shard_values: int = SHARD_TOKENS) -> SplitWriter:
    """Returns a writer of one split's images: ``extend`` takes their values, and for each image where it ends."""
    return SplitWriter(directory, name, vocabulary=VALUES, end_of_text_id=0, shard_tokens=shard_values, dtype=PIXEL)


def write_image_dataset(
    directory: Path, form: ImageForm, *, splits: Mapping[str, SplitEntry], labels: Sequence[str]
) -> None:
    """Write ``dataset.json`` of images, and beside it how others prepare an image for the networks trained on them.

    Args:
        directory: of the dataset.
        form: of the images.
        splits: the entries that ``SplitWriter.close`` gave.
        labels: names of the classes, by number.
    """
    record = {
        "format": FORMAT,
        "kind": IMAGES,
        "vocabulary": VALUES,
        "dtype": PIXEL.name,
        "images": to_json(form),
        "labels": list(labels),
        "splits": {name: to_json(entry) for name, entry in splits.items()},
    }
    with writing(directory):
        for name, value in ((IMAGE_PROCESSOR, processor(form)), (DATASET, record)):
            write_atomically(directory / name, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def processor(form: ImageForm) -> dict[str, Any]:
    """Returns Hugging Face's settings of what turns a picture into a network's input: as a task here does it.

    Networks see three channels, so that grey images have theirs three times.
    """
    times = 3 // form.channels
    return {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(form.mean) * times,
        "image_processor_type": "ViTImageProcessor",
        "image_std": list(form.std) * times,
        "resample": 2,  # bilinear
        "rescale_factor": 1 / 255,
        "size": {"height": form.size, "width": form.size},
    }
