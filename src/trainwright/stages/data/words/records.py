"""Records to sentences. A record that is none has a reason, which is counted.

The *form* of a sentence is what cleaning, deduplication and the split see: its words as a JSON list. Its label is the
JSON list of their labels. Its text is the words with a space between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainwright.stages.data.parts import TERMINATOR, publish, read_documents


class NoSentence(Exception):
    """A record is no sentence; the text is the reason."""


def sentence(words: Any, labels: Any) -> tuple[str, str]:
    """Returns the form of a sentence and its label. Raises ``NoSentence``."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise NoSentence("the words are not a list of texts")
    if not words:
        raise NoSentence("no word")
    if not all(word.strip() for word in words):
        raise NoSentence("an empty word")
    if not isinstance(labels, list) or not all(map(_is_name, labels)):
        raise NoSentence("the labels are not a list of texts or whole numbers")
    if len(labels) != len(words):
        raise NoSentence("another number of labels than of words")
    return form_of(words), form_of(list(map(str, labels)))


def form_of(words: Sequence[str]) -> str:
    """Returns words as JSON."""
    return json.dumps(words, ensure_ascii=False, separators=(",", ":"))


def words_of(form: str | bytes) -> list[str]:
    """Returns the words of a form."""
    words: list[str] = json.loads(form)
    return words


def text_of(words: Sequence[str]) -> str:
    """Returns the text of a sentence: what a tokenizer is trained on, and what it turns into tokens."""
    return " ".join(words)


def texts_in(documents: Iterable[Path], scratch: Path) -> Iterator[Path]:
    """Yields for each file of forms one with the texts: what a tokenizer is trained on."""
    for number, path in enumerate(documents):
        texts = scratch / f"said-{number:05d}.docs"
        publish(texts, (text_of(words_of(form)).encode() + TERMINATOR for form in read_documents(path)))
        yield texts


def _is_name(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or (isinstance(value, int) and not isinstance(value, bool))
