"""Cleaning of pairs: each text is normalised by itself, and the rules judge each."""

from __future__ import annotations

from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.words.records import form_of, words_of

EMPTY = "an empty text"


class PairsCleaner(Cleaner):
    """Normalises the texts of a record's form; lengths, control characters and filters see each."""

    def __call__(self, text: str) -> tuple[str, str | None]:
        """Returns the cleaned form and None, or the form so far and the reason to drop it."""
        texts = list(map(self.normalised, words_of(text)))
        reasons = (self.reason_to_drop(each) if each.strip() else EMPTY for each in texts)
        return form_of(texts), next((reason for reason in reasons if reason is not None), None)
