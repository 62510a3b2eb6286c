"""Tokens to text while they come: whole characters only, and never a part of a stop text."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tokenizers import Tokenizer

from trainwright.artifact.model_folder import TOKENIZER
from trainwright.core.errors import DataError

_SPACE_MARK = "\u2581"
"""What SentencePiece writes for a space."""


class TokenBytes:
    """The bytes that each token stands for; special tokens stand for none.

    Byte-level BPE (GPT-2, Llama 3) and SentencePiece BPE with byte fallback (Llama 2) are known. Unlike
    ``Tokenizer.decode`` the first token keeps its leading space, because a completion continues a prompt.

    Raises:
        DataError: the tokenizer's decoder is of another kind.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        kinds, spaces = _decoder_kinds(tokenizer)
        alphabet = byte_alphabet()
        self._bytes: list[bytes] = [b""] * (max(vocabulary.values()) + 1)
        for piece, token in vocabulary.items():
            if token in added:
                self._bytes[token] = b"" if added[token].special else added[token].content.encode()
            elif "ByteLevel" in kinds:
                self._bytes[token] = bytes(alphabet[character] for character in piece)
            elif "ByteFallback" in kinds and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
                self._bytes[token] = bytes([int(piece[3:5], 16)])
            else:
                self._bytes[token] = (piece.replace(_SPACE_MARK, " ") if spaces else piece).encode()

    def __getitem__(self, token: int) -> bytes:
        """Returns the token's bytes; a model may have more rows than its tokenizer has tokens, which stand for none."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def text(self, tokens: Sequence[int]) -> str:
        """Returns the text of a whole sequence; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self[token] for token in tokens).decode("utf-8", "replace")


def byte_alphabet() -> dict[str, int]:
    """Returns the printable character that byte-level BPE writes for each byte, and the byte (Radford et al., 2019)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _decoder_kinds(tokenizer: Tokenizer) -> tuple[set[str], bool]:
    """Types of the tokenizer's decoders, and whether one of them turns SentencePiece's mark into a space."""
    decoder = json.loads(tokenizer.to_str())["decoder"] or {"type": "none"}
    parts = decoder.get("decoders", [decoder])
    kinds = {str(part["type"]) for part in parts}
    spaces = "Metaspace" in kinds or any(part.get("pattern") == {"String": _SPACE_MARK} for part in parts)
    if "ByteLevel" not in kinds and not spaces:
        raise DataError(
            "this tokenizer's decoder is not supported",
            where=TOKENIZER,
            seen=", ".join(sorted(kinds)),
            expected="byte-level BPE, or SentencePiece BPE",
        )
    return kinds, spaces


@runtime_checkable
class ByteTable(Protocol):
    """The bytes of each token."""

    def __getitem__(self, token: int, /) -> bytes:
        """Returns the bytes of one token."""


class TextStream:
    """Turns the tokens of one answer into text that can be shown at once.

    A character whose bytes have not all come, and a tail that may become a stop text, wait until the next
    tokens decide. The text never depends on how the text was cut into tokens.
    """

    def __init__(self, token_bytes: ByteTable, stop: tuple[str, ...]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = stop
        self._pending = ""
        self.stopped = False
        """Whether a stop text has been reached; nothing more may be pushed then."""

    def push(self, token: int) -> str:
        """Returns the text that this token makes certain; empty where it has to wait."""
        return self._advance(self._decoder.decode(self._token_bytes[token]))

    def finish(self) -> str:
        """Returns the text that waited, at the end of the tokens; half a character becomes U+FFFD."""
        if self.stopped:
            return ""
        text = self._advance(self._decoder.decode(b"", final=True)) + self._pending
        self._pending = ""
        return text

    def _advance(self, text: str) -> str:
        if not self._stop:
            return text
        self._pending += text
        # The stop text that is complete first wins; of two that end together, the longer.
        ends = [(at + len(stop), at) for stop in self._stop if (at := self._pending.find(stop)) >= 0]
        if ends:
            self.stopped = True
            certain, self._pending = self._pending[: min(ends)[1]], ""
            return certain
        keep = max((_overlap(self._pending, stop) for stop in self._stop), default=0)
        certain, self._pending = self._pending[: len(self._pending) - keep], self._pending[len(self._pending) - keep :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``, shorter than ``stop`` itself."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
