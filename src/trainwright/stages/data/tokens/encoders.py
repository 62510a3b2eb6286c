"""Two encoders that turn text into ids: gigatoken where it can, Hugging Face ``tokenizers`` as reference and fallback.

gigatoken trains and encodes one to two orders of magnitude faster and gives the same ids; that is not taken on trust:
``choose_encoder`` compares both on documents of the corpus and on texts that tend to go wrong.

A document that spells a special token, such as ``<|endoftext|>``, is text like any other: encoders never turn it into
the special id, so that no document can forge the border between two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trainwright.stages.data.optional import need

EncoderName = Literal["gigatoken", "tokenizers"]

PROBES = (
    b"",
    b" ",
    b"\n\n\n",
    b"a  b   c\t\td\r\ne\n  \n",
    b"x = 1000000; y_2 = 'isn''t'  # they've I'll 12345",
    "na\u00efve caf\u00e9 \u4f60\u597d\u4e16\u754c \u0645\u0631\u062d\u0628\u0627 e\u0301".encode(),
    "\U0001f469\u200d\U0001f4bb \u00a0\u2003|\ufeff|\u2028 \u00b2\u0be7\u0968".encode(),
    b"before<|endoftext|>after <s> </s> [CLS] <|im_start|>",
    b"\x00\x01\x7f",
)
"""Texts that tell tokenizers apart: spaces, line ends, contractions, digits, scripts, emoji, special tokens."""


class Encoder(Protocol):
    """Turns UTF-8 bytes into ids and back."""

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.integer[Any]]]:
        """Ids of each text, without any special token."""

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """Returns the bytes that ids stand for."""


class GigatokenEncoder:
    """gigatoken, one document at a time on the calling thread: its cache of words makes that the fastest way.

    Raises:
        ValueError: it refuses this tokenizer.
    """

    def __init__(self, tokenizer_json: str) -> None:
        gigatoken = need("gigatoken", needed_for="tokenizing with gigatoken")
        self._tokenizer = gigatoken.Tokenizer.from_json(_without_special_tokens(tokenizer_json))

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.integer[Any]]]:
        """Ids of each text, without any special token."""
        return [self._tokenizer.encode(text) for text in texts]

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """Returns the bytes that ids stand for."""
        return bytes(self._tokenizer.decode(ids))


class TokenizersEncoder:
    """Hugging Face ``tokenizers``: slower, takes every tokenizer.json, and is what others will load the file with."""

    def __init__(self, tokenizer_json: str) -> None:
        tokenizers = need("tokenizers", needed_for="tokenizing")
        self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.integer[Any]]]:
        """Ids of each text, without any special token."""
        encodings = self._tokenizer.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """Returns the bytes that ids stand for."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)).encode()


def _without_special_tokens(tokenizer_json: str) -> str:
    record = json.loads(tokenizer_json)
    record["added_tokens"] = [token for token in record.get("added_tokens") or [] if not token.get("special")]
    return json.dumps(record)


def load_encoder(name: EncoderName, path: Path) -> Encoder:
    """Returns the encoder for a tokenizer.json, kept for the next bucket that this process encodes."""
    return _encoder(name, path.read_text(encoding="utf-8"))


@lru_cache(maxsize=2)
def _encoder(name: EncoderName, tokenizer_json: str) -> Encoder:
    return GigatokenEncoder(tokenizer_json) if name == "gigatoken" else TokenizersEncoder(tokenizer_json)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderChoice:
    """Which encoder is used, and why: ``checked_documents`` were encoded by both with equal ids."""

    encoder: EncoderName
    reason: str
    checked_documents: int


def choose_encoder(path: Path, sample: Sequence[bytes]) -> EncoderChoice:
    """Returns the fast encoder where it is installed, takes the tokenizer and gives the reference's ids.

    Both encode ``sample`` and ``PROBES``; one difference is enough to take the reference.
    """
    if find_spec("gigatoken") is None:
        return EncoderChoice(encoder="tokenizers", reason="gigatoken is not installed", checked_documents=0)
    texts = [*PROBES, *sample]
    try:
        fast = load_encoder("gigatoken", path).encode(texts)
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        reason = f"gigatoken refuses this tokenizer: {error}"
        return EncoderChoice(encoder="tokenizers", reason=reason, checked_documents=0)
    reference = load_encoder("tokenizers", path).encode(texts)
    for text, mine, theirs in zip(texts, fast, reference, strict=True):
        if not np.array_equal(mine, theirs):
            shown = text[:40].decode("utf-8", "replace")
            reason = f"gigatoken gives other ids than tokenizers for {shown!r}"
            return EncoderChoice(encoder="tokenizers", reason=reason, checked_documents=len(texts))
    return EncoderChoice(encoder="gigatoken", reason="same ids as tokenizers", checked_documents=len(texts))
