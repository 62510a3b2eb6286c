from __future__ import annotations

from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.pairs.cleaning import PairsCleaner
from trainwright.stages.data.words.records import form_of


def test_texts_are_normalised_and_judged_one_by_one() -> None:
    clean = PairsCleaner(CleanSection(unicode="nfc", min_characters=2))
    assert clean(form_of(["e\u0301 x", "\ufeffab"])) == (form_of(["é x", "ab"]), None)
    assert clean(form_of(["abcd", "a"]))[1] == "under 2 characters"
    assert clean(form_of(["abcd", "\ufeff"]))[1] == "an empty text"
