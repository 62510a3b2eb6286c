from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from fixtures import tiny_models
from trainwright.model.generation.prompts import PromptEncoder


def byte_level(**changes) -> Tokenizer:
    made = tiny_models.tokenizer()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def sentencepiece(*, byte_fallback: bool = True, **changes) -> Tokenizer:
    """Llama 2's form: spaces are marks, and bytes stand in for unknown characters."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁eth", "th", "the", "▁the", "▁▁"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁")]
    model = models.BPE(
        {piece: n for n, piece in enumerate(pieces)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=byte_fallback,
    )
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    for name, value in changes.items():
        setattr(made, name, value)
    return made


WITH_STRIP = byte_level()
WITH_STRIP.add_special_tokens([AddedToken("<|end|>", rstrip=True)])
TOKENIZERS = {
    "byte level": byte_level(),
    "byte level, normal form": byte_level(normalizer=normalizers.NFC()),
    "byte level, compatible form": byte_level(normalizer=normalizers.NFKC()),
    "byte level, stripping token": WITH_STRIP,
    "sentencepiece": sentencepiece(),
    "sentencepiece, drops unknown": sentencepiece(byte_fallback=False),
    "lower case": byte_level(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])),
    "strips": byte_level(normalizer=normalizers.Strip()),
    "drops spaces": byte_level(
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()])
    ),
}
PIECES = (
    *("the", " the", "  ", "▁▁", "return", "é", "e\N{COMBINING ACUTE ACCENT}", "\N{LATIN SMALL LIGATURE FFI}", "Å"),
    *("<|endoftext|>", "<|end|>", "<0xC3>", "你好", "\N{WAVING HAND SIGN}", "\n", "\0", "\N{ANGSTROM SIGN}"),
)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
@settings(max_examples=150, deadline=None)
def test_no_text_has_fewer_tokens_than_is_said(name, text):
    encoder = PromptEncoder(TOKENIZERS[name])
    tokens = encoder.encode(text, special=False)
    assert encoder.fewest_tokens(text) <= len(tokens)
    assert tokens == TOKENIZERS[name].encode(text, add_special_tokens=False).ids


def test_the_bound_is_reached():
    encoder = PromptEncoder(byte_level())
    assert len(encoder.encode("<|endoftext|>" * 50, special=False)) == encoder.fewest_tokens("<|endoftext|>" * 50) == 50
    assert PromptEncoder(sentencepiece()).fewest_tokens("▁the" * 10) == 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lower case", "abc"),
        ("strips", "abc"),
        ("drops spaces", "abc"),
        ("sentencepiece, drops unknown", "abc"),
        ("byte level, normal form", "e\N{COMBINING ACUTE ACCENT}" * 9),
        ("byte level, stripping token", "a<|end|>   "),
    ],
)
def test_where_characters_may_vanish_nothing_is_certain(name, text):
    assert PromptEncoder(TOKENIZERS[name]).fewest_tokens(text) == 0


@pytest.mark.parametrize("name", ["byte level", "byte level, normal form", "byte level, stripping token"])
def test_elsewhere_length_says_it(name):
    assert PromptEncoder(TOKENIZERS[name]).fewest_tokens("x" * 1300) == 100
