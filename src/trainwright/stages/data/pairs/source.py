"""The sources ``pairs`` (lines of JSON, rows of Parquet) and ``python-docstring-pairs``: texts that belong together.

The form of a record is the JSON list of its texts: the anchor, its positive, and its negatives.
"""

from __future__ import annotations

from typing import Any

from trainwright.spec.sections.corpus.pairs import DocstringPairsSource, PairsSource
from trainwright.stages.data.chats.records import NoChat
from trainwright.stages.data.sources.chats import Records
from trainwright.stages.data.sources.docstrings import Headed, HeadedParagraphs, head_of
from trainwright.stages.data.words.records import form_of


class Pairs(Records[PairsSource]):
    """Two texts, and their negatives."""

    Section = PairsSource

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the keys of the texts."""
        section = self.section
        return tuple(filter(None, (section.anchor_key, section.positive_key, section.negative_key)))

    def form(self, value: dict[str, Any]) -> str:
        """Returns the form of the texts. Raises ``NoChat``."""
        section = self.section
        anchor, positive = (_text(value.get(key), key) for key in (section.anchor_key, section.positive_key))
        negatives = []
        if section.negative_key is not None:
            given = value.get(section.negative_key)
            found = given if isinstance(given, list) else [] if given is None else [given]
            negatives = [_text(each, section.negative_key) for each in found[: section.negatives]]
            if len(negatives) < section.negatives:
                raise NoChat("too few negatives")
        if anchor == positive:
            raise NoChat("both texts are the same")
        if positive in negatives or anchor in negatives:
            raise NoChat("a negative is a text of the pair")
        return form_of([anchor, positive, *negatives])


class PythonDocstringPairs(HeadedParagraphs[DocstringPairsSource]):
    """Heads of functions and classes of the running Python's own library, each with its docstring's paragraph."""

    Section = DocstringPairsSource

    def form(self, node: Headed, words: list[str]) -> str:
        """Returns the form of the paragraph, which is searched with, and of the head."""
        return form_of([" ".join(words), head_of(node)])


def _text(value: Any, key: str) -> str:
    if value is None:
        raise NoChat(f"no key {key!r}")
    if not isinstance(value, str):
        raise NoChat(f"{key!r} is not a text")
    if not value.strip():
        raise NoChat("an empty text")
    return value
