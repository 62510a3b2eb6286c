"""The data section: shares that sum to one, a path for a tokenizer that is brought along."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.data import DataExec, DataSection, SplitSection, TokenizerSection


def test_default_split_is_seventy_fifteen_fifteen() -> None:
    split = SplitSection()
    assert (split.train, split.validation, split.test) == (0.70, 0.15, 0.15)
    with pytest.raises(ValidationError, match="the shares sum to 1.1, expected 1"):
        SplitSection(train=0.8)


@pytest.mark.parametrize("keys", [{"kind": "pretrained"}, {"kind": "byte-bpe", "path": "tokenizer.json"}])
def test_a_path_goes_with_pretrained_only(keys) -> None:
    with pytest.raises(ValidationError, match="path goes with kind: pretrained"):
        TokenizerSection.model_validate(keys)


def test_a_corpus_needs_a_source() -> None:
    with pytest.raises(ValidationError):
        DataSection(sources=())


def test_more_workers_than_any_machine_has_processors_are_refused() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1024"):
        DataExec.model_validate({"workers": 100_000})
