"""Prompts to tokens, and how few tokens a text can have at least, which is known before any work."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from tokenizers import Tokenizer

from trainwright.model.generation.text_stream import byte_alphabet

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]

_KEEPING_SPLITTERS = frozenset(("ByteLevel", "Metaspace", "Digits", "Split", "Punctuation"))
"""Pre-tokenizers that leave no character out, unless their behaviour is "Removed"."""


class PromptEncoder:
    """Turns texts into tokens. Long texts take a while; other Python threads run meanwhile.

    A text of N bytes has at least N / L tokens, where L is the length of the longest token, if nothing between text and
    tokens leaves characters out. ``fewest_tokens`` knows the tokenizers and texts for which that is certain.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        settings = json.loads(tokenizer.to_str())
        self._forms = tuple(_normal_forms(settings["normalizer"]))
        added = tokenizer.get_added_tokens_decoder().values()
        self._stripping = tuple(token.content for token in added if token.lstrip or token.rstrip)
        self._longest_bytes = _longest_token_bytes(settings, tokenizer)

    def fewest_tokens(self, text: str) -> int:
        """Returns a number that the text's tokens are never below; 0 where nothing is certain."""
        if self._longest_bytes is None or any(token in text for token in self._stripping):
            return 0
        if not all(unicodedata.is_normalized(form, text) for form in self._forms):
            return 0
        return -(-len(text.encode()) // self._longest_bytes)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Returns the text's tokens, with those that the tokenizer adds around a text where ``special``."""
        # A batch releases Python's lock while it is encoded, a single text does not; "fast" leaves out offsets.
        tokens: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids
        return tokens


def _longest_token_bytes(settings: Mapping[str, Any], tokenizer: Tokenizer) -> int | None:
    """Returns bytes of text that one token stands for at most; None where some text leaves no token behind.

    A byte-level piece has one character for each byte. Any other piece stands for its own text at most: SentencePiece's
    mark for a space has three bytes, and a text may hold the mark itself.
    """
    normalizers, splitters = list(_parts(settings["normalizer"])), list(_parts(settings["pre_tokenizer"]))
    byte_level = any(part["type"] == "ByteLevel" for part in (*normalizers, *splitters))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if byte_level:
        complete = byte_alphabet().keys() <= vocabulary.keys()
    else:
        byte_tokens = {f"<0x{byte:02X}>" for byte in range(256)}
        complete = bool(settings["model"].get("byte_fallback")) and byte_tokens <= vocabulary.keys()
    keeps_all = (
        settings["truncation"] is None
        and all(map(_never_shortens, normalizers))
        and all(part["type"] in _KEEPING_SPLITTERS and part.get("behavior") != "Removed" for part in splitters)
    )
    if not (complete and keeps_all):
        return None
    added = tokenizer.get_added_tokens_decoder()
    return max(
        len(piece) if byte_level and token not in added else len(piece.encode()) for piece, token in vocabulary.items()
    )


def _never_shortens(normalizer: Mapping[str, Any]) -> bool:
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"].get("String")
        return pattern is not None and len(normalizer["content"].encode()) >= len(pattern.encode())
    return normalizer["type"] in {"Prepend", "ByteLevel", "NFC", "NFD", "NFKC", "NFKD"}


def _normal_forms(settings: Mapping[str, Any] | None) -> Iterator[NormalForm]:
    for part in _parts(settings):
        if part["type"] in {"NFC", "NFD", "NFKC", "NFKD"}:
            yield cast("NormalForm", part["type"])


def _parts(settings: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yields the members of a sequence of normalizers or pre-tokenizers, however deep."""
    if settings is None:
        return
    members = settings.get("normalizers", settings.get("pretokenizers"))
    if members is None:
        yield settings
        return
    for member in members:
        yield from _parts(member)
