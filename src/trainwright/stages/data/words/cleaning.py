"""Cleaning of sentences: each word is normalised by itself, and the rules judge the text."""

from __future__ import annotations

from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.words.records import form_of, text_of, words_of


class WordsCleaner(Cleaner):
    """Normalises the words of a sentence's form; lengths, control characters and filters see its text."""

    def __call__(self, text: str) -> tuple[str, str | None]:
        """Returns the cleaned form and None, or the form so far and the reason to drop it."""
        words = list(map(self.normalised, words_of(text)))
        reason = self.reason_to_drop(text_of(words)) if all(map(str.strip, words)) else "an empty word"
        return form_of(words), reason
