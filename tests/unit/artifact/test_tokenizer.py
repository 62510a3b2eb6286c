"""A tokenizer.json is read, or refused by its path; so is one without the token between documents."""

from __future__ import annotations

import pytest

from trainwright.artifact.tokenizer import end_of_text_id, load_tokenizer
from trainwright.core.errors import DataError
from trainwright.testing.artifacts import END_OF_TEXT, train_tokenizer


def test_a_tokenizer_is_read_and_its_end_of_text_found(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    made = train_tokenizer(["some words of text"], vocabulary=270)
    made.save(str(path))
    read = load_tokenizer(path)
    assert read.encode("words of text").ids == made.encode("words of text").ids
    assert end_of_text_id(read, END_OF_TEXT, where="here") == made.token_to_id(END_OF_TEXT)
    with pytest.raises(DataError, match=r"here: this tokenizer has no token '</s>' \(seen <\|endoftext\|>\); set data"):
        end_of_text_id(read, "</s>", where="here")


def test_what_is_no_tokenizer_is_named(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    for content in (None, b"{}", b"\xff\x00"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match="tokenizer.json: cannot read the tokenizer"):
            load_tokenizer(path)
