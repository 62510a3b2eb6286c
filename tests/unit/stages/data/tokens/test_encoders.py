from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.stages.data.tokens import encoders
from trainwright.stages.data.tokens.encoders import PROBES, GigatokenEncoder, TokenizersEncoder, choose_encoder
from trainwright.stages.data.tokens.tokenizer import tokenizer_json

MERGES = [(b"e", b"r"), (b" ", b"t"), (b"h", b"er"), (b" t", b"her"), (b"\n", b"\n"), (b"\xc3", b"\xa9")]


@pytest.fixture(scope="module")
def text():
    return tokenizer_json(MERGES, end_of_text="<|endoftext|>")


@pytest.fixture
def path(tmp_path, text):
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [GigatokenEncoder, TokenizersEncoder])
def test_engines_give_every_probe_back(make, text):
    encoder = make(text)
    for probe, ids in zip(PROBES, encoder.encode(PROBES), strict=True):
        assert encoder.decode(ids) == probe
        assert 256 not in ids, "a text that spells the end-of-text token is no end of text"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sample=st.text().map(lambda text: text.encode("utf-8", "replace")))
def test_engines_agree_with_each_other_and_with_the_library(text, sample):
    reference = tokenizers.Tokenizer.from_str(text)
    reference.encode_special_tokens = True
    expected = reference.encode(sample.decode(), add_special_tokens=False).ids
    for make in (GigatokenEncoder, TokenizersEncoder):
        encoder = make(text)
        (ids,) = encoder.encode([sample])
        assert ids.tolist() == expected
        assert encoder.decode(ids) == sample


def test_the_fast_engine_is_taken_where_it_agrees(path):
    choice = choose_encoder(path, [b"the other", "été".encode()])
    assert (choice.encoder, choice.reason) == ("gigatoken", "same ids as tokenizers")
    assert choice.checked_documents == len(PROBES) + 2


def test_one_other_id_is_enough_to_fall_back(path, monkeypatch):
    real = GigatokenEncoder.encode
    monkeypatch.setattr(
        GigatokenEncoder, "encode", lambda self, texts: [ids + (len(ids) > 0) for ids in real(self, texts)]
    )
    choice = choose_encoder(path, [b"text"])
    assert choice.encoder == "tokenizers"
    assert choice.reason.startswith("gigatoken gives other ids than tokenizers for ' '")


def test_without_gigatoken(path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(encoders, "find_spec", lambda name: None if name == "gigatoken" else real(name))
    assert choose_encoder(path, []) == encoders.EncoderChoice(
        encoder="tokenizers", reason="gigatoken is not installed", checked_documents=0
    )


def test_a_tokenizer_that_gigatoken_refuses(tmp_path):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.save(str(tmp_path / "tokenizer.json"))
    choice = choose_encoder(tmp_path / "tokenizer.json", [b"a"])
    assert choice.encoder == "tokenizers"
    assert choice.reason.startswith("gigatoken refuses this tokenizer: ")


def test_truncation_and_padding_of_a_brought_tokenizer_do_not_touch_documents(text):
    record = json.loads(text)
    record["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (ids,) = TokenizersEncoder(json.dumps(record)).encode([b"abcdef"])
    assert ids.tolist() == list(b"abcdef")
    assert ids.dtype == np.uint32
