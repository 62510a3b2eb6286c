"""Labels stand where transformers puts them, and what is wrong with them is counted and said."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trainwright.artifact.shard_files import NO_TAG
from trainwright.artifact.shards import TokenDataset
from trainwright.stages.data.words.encode import tagged
from trainwright.testing.artifacts import train_tokenizer


def word_pieces() -> Tokenizer:
    pieces = ["[UNK]", "play", "##ing", "##s", "the", "un", "##der", "'", "a", "##b", "e"]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def test_a_label_stands_at_the_first_piece_as_in_transformers() -> None:
    words, numbers = ["Playing", "the", "under's", "ab", "É", "??"], [3, 1, 4, 0, 5, 9]
    fast = PreTrainedTokenizerFast(tokenizer_object=word_pieces())
    encoding = fast(words, is_split_into_words=True)
    expected, before = [], None
    for word in encoding.word_ids():
        expected.append(NO_TAG if word in (None, before) else numbers[word])
        before = word
    ids, tags, lost = tagged(word_pieces(), words, numbers)
    assert (ids.tolist(), tags.tolist(), lost) == (encoding["input_ids"], expected, 0)


def test_bytes_and_spaces_of_words_are_their_own() -> None:
    tokenizer = train_tokenizer(["ab ab ab # c d"], vocabulary=270)
    words = ["ab", "é🙂", "# c d", "ab"]
    ids, tags, lost = tagged(tokenizer, words, [0, 1, 2, 3])
    texts = [tokenizer.decode(ids[: place + 1].tolist()) for place in range(len(ids)) if tags[place] != NO_TAG]
    assert tokenizer.decode(ids.tolist()) == "ab é🙂 # c d ab"
    assert lost == 0 and tags[tags != NO_TAG].tolist() == [0, 1, 2, 3]
    assert [text.replace("\ufffd", "").split(" ")[0] for text in texts] == ["ab"] * 4
    assert texts[2].startswith("ab é🙂 #") and texts[3] == "ab é🙂 # c d ab"


def test_a_mark_before_a_text_is_no_piece_of_its_first_word() -> None:
    tokenizer = Tokenizer(models.BPE({"▁": 0, "a": 1, "b": 2, "▁b": 3, "日": 4}, [("▁", "b")]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = ["日", "b", "日a", "▁"]
    encoding = tokenizer.encode(" ".join(words))
    assert encoding.tokens == ["▁", "日", "▁b", "▁", "日", "a", "▁", "▁"]
    assert tagged(tokenizer, words, [5, 6, 7, 8])[1:] == (
        pytest.approx([NO_TAG, 5, 6, NO_TAG, 7, NO_TAG, NO_TAG, 8]),
        0,
    )


def test_words_that_share_a_token_or_have_none_are_counted() -> None:
    joined = Tokenizer(models.WordLevel({"new york": 0, "[UNK]": 1}, unk_token="[UNK]"))
    assert tagged(joined, ["new", "york"], [7, 8])[1:] == (pytest.approx([7]), 1)
    silent = word_pieces()
    silent.normalizer = normalizers.BertNormalizer(clean_text=True)
    ids, tags, lost = tagged(silent, ["\u0007", "the"], [7, 8])
    assert (ids.tolist(), tags.tolist(), lost) == ([4], [8], 1)


def test_a_dataset_of_sentences_is_read_back(prepare, section, tmp_path) -> None:
    rows = [
        {"words": ["Anna", "Berg", "ran"], "labels": ["B-PER", "I-PER", "O"]},
        {"words": ["she", "saw", "Oslo"], "labels": ["O", "I-PER", "B-LOC"]},
        {"words": ["gone"], "labels": ["O"]},
        {"words": ["gone"], "labels": ["B-LOC"]},
        {"words": ["two", "words"], "labels": ["O"]},
        {"tokens": ["x"]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = prepare(section({"kind": "words", "paths": [str(tmp_path / "a.jsonl")]}))
    dataset = TokenDataset.open(done.out)
    split, tokenizer = dataset.splits["train"], Tokenizer.from_file(str(dataset.tokenizer_path))
    assert (dataset.kind, dataset.labels) == ("words", ("B-LOC", "B-PER", "I-PER", "O"))
    found = {}
    ends = split.document_ends.tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        tags = split.tags(start, end).tolist()
        text = tokenizer.decode(split.read(start, end - 1).tolist())
        found[text] = [dataset.labels[tag] for tag in tags if tag != NO_TAG]
        assert tags[-1] == NO_TAG
    assert found == {" ".join(row["words"]): row["labels"] for row in rows[:3]}
    assert split.document_bytes.sum() == sum(len(text) for text in found)
    told = "\n".join(done.messages)
    assert "1 sentence with labels that are of no whole entity of IOB2 (a.jsonl:2)" in told
    assert "another number of labels than of words (a.jsonl:5)" in told and "no key 'words' (a.jsonl:6)" in told
    assert "dropped 1 document equal to an earlier one that has another label (a.jsonl:4)" in told
    report = json.loads((done.out / "report.json").read_text())
    assert report["splits"]["train"]["classes"] == {"B-LOC": 1, "B-PER": 1, "I-PER": 2, "O": 3}
    (done.out / "train-00000.tags").write_bytes(b"0")
    with pytest.raises(Exception, match="labels of words of a token shard are damaged"):
        TokenDataset.open(done.out)
