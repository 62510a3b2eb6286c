"""A tokenizer.json is read, or refused by its path; so is one without the token between documents."""

from __future__ import annotations

import json

import pytest
import tokenizers

from trainwright.artifact.tokenizer import end_of_text_id, end_of_text_of, load_tokenizer
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


def test_a_model_says_its_end_of_text_in_one_of_five_places(tmp_path) -> None:
    def write(name: str, content: dict) -> None:
        (tmp_path / name).write_text(json.dumps(content))

    assert end_of_text_of(tmp_path) is None
    train_tokenizer(["some words of text"], vocabulary=270).save(str(tmp_path / "tokenizer.json"))
    assert end_of_text_of(tmp_path) == END_OF_TEXT, "trained here"
    added = [{"id": 0, "content": "<s>"}, {"id": 7, "content": "</s>"}, {"id": 9, "content": "<|im_end|>"}]
    write("tokenizer.json", {"added_tokens": added})
    assert end_of_text_of(tmp_path) is None
    for said, text in ((7, "</s>"), ([9, 7], "<|im_end|>"), (None, None), ([], None), (8, None)):
        write("config.json", {"eos_token_id": said})
        assert end_of_text_of(tmp_path) == text
    write("tokenizer_config.json", {"sep_token": {"content": "[SEP]"}, "eos_token": None})
    assert end_of_text_of(tmp_path) == "[SEP]"
    write("tokenizer_config.json", {"sep_token": "[SEP]", "eos_token": "<|endoftext|>"})
    assert end_of_text_of(tmp_path) == "<|endoftext|>"


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("form", ["BertProcessing", "TemplateProcessing"])
def test_what_a_tokenizer_puts_behind_a_text_ends_it(tmp_path, form: str, several: bool) -> None:
    special = (("[CLS]", 1), ("[SEP]", 2))
    template = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B [SEP]", "special_tokens": special}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2}, "[PAD]"))
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    if form == "BertProcessing":
        processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    else:
        processor = tokenizers.processors.TemplateProcessing(**template)
    made.post_processor = tokenizers.processors.Sequence([processor]) if several else processor
    made.save(str(tmp_path / "tokenizer.json"))
    assert end_of_text_of(tmp_path) == "[SEP]"


@pytest.mark.parametrize(
    "content", [{"added_tokens": [{"x": 1}]}, {"added_tokens": [3]}, {"post_processor": {"sep": 4}}], ids=str
)
def test_what_is_no_tokenizer_says_no_end(tmp_path, content: dict) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"tokenizer\.json: this is no tokenizer\.json"):
        end_of_text_of(tmp_path)
