from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.corpus.words import ConllSource
from trainwright.spec.sections.data import DataSection


def test_words_have_labels_and_stand_alone() -> None:
    section = DataSection.model_validate({"sources": [{"kind": "words", "paths": ["x"], "words_key": "tokens"}]})
    assert (section.records, section.label_kind, section.labelled) == ("words", "words", True)
    both = [{"kind": "conll", "paths": ["x"]}, {"kind": "files", "paths": ["y"]}]
    with pytest.raises(ValidationError, match=r"sources\.1 gives documents and sources\.0 words"):
        DataSection.model_validate({"sources": both})


def test_one_column_is_not_both() -> None:
    with pytest.raises(ValidationError, match="word_column and tag_column are both 2"):
        ConllSource(kind="conll", paths=("x",), word_column=2, tag_column=2)
