from __future__ import annotations

import json
import random

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from trainwright.core.errors import DataError
from trainwright.spec.sections.data import TokenizerSection
from trainwright.stages.data.parts import TERMINATOR
from trainwright.stages.data.tokens import tokenizer as module
from trainwright.stages.data.tokens.tokenizer import byte_characters, tokenizer_facts, tokenizer_json, train_tokenizer
from trainwright.testing.artifacts import train_tokenizer as reference

NATURAL = [
    "The quick brown fox, naïve as ever, jumped over 12 lazy dogs.\n\n\tIt didn't fall!",
    "def f(x):\n    return x ** 2  # 平方\n",
    "<|endoftext|> is only text here",
]


def texts(seed=0, count=300):
    words = random.Random(seed)
    vocabulary = ["".join(words.choices("etaoinshrdlu ", k=words.randint(2, 8))) for _ in range(900)]
    return NATURAL + [" ".join(words.choices(vocabulary, k=40)) for _ in range(count)]


def docs(path, documents):
    path.write_bytes(b"".join(text.encode() + TERMINATOR for text in documents))
    return path


def without(monkeypatch, package):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else object())


@pytest.mark.parametrize("vocabulary", [257, 300, 900])
def test_merges_are_those_of_the_reference_trainer(tmp_path, vocabulary):
    parts = [docs(tmp_path / "a.docs", texts()[:100]), docs(tmp_path / "b.docs", texts()[100:])]
    trained = train_tokenizer(TokenizerSection(vocabulary=vocabulary), parts, tmp_path / "tokenizer.json")
    expected = reference(texts(), vocabulary=vocabulary)
    assert (trained.trainer, trained.vocabulary) == ("gigatoken", vocabulary)
    merges = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["merges"]
    assert merges == json.loads(expected.to_str())["model"]["merges"]
    mine = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts(seed=1):
        assert mine.encode(text).tokens == expected.encode(text).tokens


def test_both_trainers_write_the_same_file(tmp_path, monkeypatch):
    source = [docs(tmp_path / "a.docs", texts())]
    train_tokenizer(TokenizerSection(vocabulary=700), source, tmp_path / "fast.json")
    without(monkeypatch, "gigatoken")
    trained = train_tokenizer(TokenizerSection(vocabulary=700), source, tmp_path / "slow.json")
    assert (trained.trainer, trained.reason) == ("tokenizers", "gigatoken is not installed")
    assert (tmp_path / "fast.json").read_bytes() == (tmp_path / "slow.json").read_bytes()


@pytest.mark.parametrize("documents", [["hello"], ["aaa bbb aaa bbb ab ab"], [""], ["\U0001f600 é"], ["ab " * 1000]])
def test_a_corpus_too_small_for_the_vocabulary_gives_a_smaller_one(tmp_path, documents):
    trained = train_tokenizer(
        TokenizerSection(vocabulary=2000), [docs(tmp_path / "a.docs", documents)], tmp_path / "tokenizer.json"
    )
    expected = reference(documents, vocabulary=2000)
    assert trained.vocabulary == expected.get_vocab_size() < 2000
    merges = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["merges"]
    assert merges == json.loads(expected.to_str())["model"]["merges"]


def test_the_trainer_is_silent(tmp_path, capfd):
    train_tokenizer(TokenizerSection(vocabulary=300), [docs(tmp_path / "a.docs", texts())], tmp_path / "tokenizer.json")
    assert capfd.readouterr() == ("", "")


def test_a_trainer_that_fails_is_replaced(tmp_path, monkeypatch):
    real = module.run_apart

    def fail(function, job):
        if function is module.gigatoken_merges:
            raise ValueError("no such thing")
        return real(function, job)

    monkeypatch.setattr(module, "run_apart", fail)
    trained = train_tokenizer(
        TokenizerSection(vocabulary=300), [docs(tmp_path / "a.docs", texts())], tmp_path / "tokenizer.json"
    )
    assert (trained.trainer, trained.reason) == ("tokenizers", "gigatoken's trainer failed: no such thing")


def test_an_end_of_text_that_texts_say_is_refused(tmp_path):
    section = TokenizerSection(vocabulary=400, end_of_text=" the")
    with pytest.raises(DataError, match=r"the end-of-text token is a word of the corpus \(seen ' the'\)"):
        train_tokenizer(section, [docs(tmp_path / "a.docs", ["the the the the cat"] * 50)], tmp_path / "t.json")


def test_the_byte_table_is_the_one_the_library_uses():
    assert sorted(byte_characters().values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("\x00 \n\t\x7f", "é漢\U0001f600", "\xad\xa0"):
        ((written, _),) = level.pre_tokenize_str(text)
        assert written == "".join(byte_characters()[byte] for byte in text.encode())


def test_transformers_loads_the_file_and_gives_texts_back(tmp_path):
    from transformers import PreTrainedTokenizerFast

    train_tokenizer(TokenizerSection(vocabulary=500), [docs(tmp_path / "a.docs", texts())], tmp_path / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="<|endoftext|>")
    assert (len(tokenizer), tokenizer.eos_token_id) == (500, 256)
    for text in texts()[1:20]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode("a<|endoftext|>") == [ord("a"), 256]


# ------------------------------------------------------------------------------------------------------ pretrained
def test_facts_of_a_tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json([(b"a", b"b")], end_of_text="</s>"), encoding="utf-8")
    assert tokenizer_facts(path, end_of_text="</s>") == module.TokenizerFacts(vocabulary=258, end_of_text_id=256)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, r"cannot read the tokenizer \(seen No such file or directory, expected a tokenizer.json\)"),
        (b"{", r"cannot read the tokenizer \(seen EOF while parsing"),
        (b"\xff\xfe", r"cannot read the tokenizer \(seen 'utf-8' codec"),
        (b"[]", r"cannot read the tokenizer"),
        (b'{"model": {"type": "Nonsense"}}', r"cannot read the tokenizer"),
    ],
)
def test_a_broken_tokenizer_is_one_line(tmp_path, content, line):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=line) as caught:
        tokenizer_facts(path, end_of_text="<|endoftext|>")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_end_of_text_names_the_special_tokens_there_are(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json([], end_of_text="</s>"), encoding="utf-8")
    with pytest.raises(DataError, match=r"has no token '<eot>' \(seen </s>\); set data.tokenizer.end_of_text"):
        tokenizer_facts(path, end_of_text="<eot>")
