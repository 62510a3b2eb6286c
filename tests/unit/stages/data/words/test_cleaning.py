from __future__ import annotations

from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.words.cleaning import WordsCleaner
from trainwright.stages.data.words.records import form_of


def test_words_are_normalised_one_by_one_and_judged_together() -> None:
    clean = WordsCleaner(CleanSection(unicode="nfc", min_characters=4))
    assert clean(form_of(["e\u0301", "\ufeffab"])) == (form_of(["é", "ab"]), None)
    assert clean(form_of(["a", "b"]))[1] == "under 4 characters"
    assert clean(form_of(["abcd", "\ufeff"]))[1] == "an empty word"
