from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from trainwright.core.errors import DataError
from trainwright.model.generation.text_stream import TextStream, TokenBytes, byte_alphabet

TEXTS = ["plain", "Größe 你好 🙂👩‍👩‍👧 end", " leading space", "\n\ttabs", "a\x00b", "\ufffd already"]


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return tiny.tokenizer()


@pytest.fixture(scope="module")
def token_bytes(tokenizer):
    return TokenBytes(tokenizer)


def test_alphabet_is_the_tokenizers_own():
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer, token_bytes, text):
    assert token_bytes.text(tokenizer.encode(text).ids) == text


@given(ids=st.lists(st.integers(0, 319), max_size=40))
@settings(max_examples=200, deadline=None)
def test_streamed_equals_decoded_at_once_for_any_tokens(tokenizer, token_bytes, ids):
    stream = TextStream(token_bytes, ())
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == tokenizer.decode(ids)


@pytest.mark.parametrize("text", TEXTS[:4])
def test_no_half_character_is_shown(tokenizer, token_bytes, text):
    stream = TextStream(token_bytes, ())
    shown = ""
    for token in tokenizer.encode(text).ids:
        shown += stream.push(token)
        assert text.startswith(shown)
    assert shown + stream.finish() == text


def test_a_character_cut_off_at_the_end_is_marked(tokenizer, token_bytes):
    stream = TextStream(token_bytes, ())
    first_byte = tokenizer.token_to_id("ð")  # 0xF0: begins a character of four bytes
    assert stream.push(first_byte) == ""
    assert stream.finish() == "\ufffd"


def reference(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """Character by character: the answer ends as soon as it ends with a stop text, the longest of them."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


@given(
    text=st.text("abc 你", max_size=30),
    stops=st.lists(st.text("abc 你", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_stop_texts_are_found_however_the_text_is_cut(token_bytes, text, stops, data):
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    stream = TextStream(dict(enumerate(chunks)), stops)
    wanted, stopped = reference(text, stops)
    shown = ""
    for token in range(len(chunks)):
        shown += stream.push(token)
        assert wanted.startswith(shown)
        if stream.stopped:
            break
    assert (shown + stream.finish(), stream.stopped) == (wanted, stopped)


def test_special_tokens_are_no_text_and_other_added_ones_are(tiny):
    made = tiny.tokenizer()
    made.add_tokens([AddedToken("<tool>", special=False)])
    token_bytes = TokenBytes(made)
    assert token_bytes[made.token_to_id("<tool>")] == b"<tool>"
    assert token_bytes[made.token_to_id(tiny.END)] == b""
    assert token_bytes[100_000] == b""


def test_sentencepiece_keeps_spaces_and_bytes():
    vocabulary = {"<unk>": 0, "<0xE4>": 1, "<0xBD>": 2, "<0xA0>": 3, "\u2581hello": 4, "\u2581": 5, "x": 6}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    assert TokenBytes(made).text([4, 6, 5, 1, 2, 3]) == " hellox 你"


def test_another_decoder_is_refused():
    made = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    made.decoder = decoders.WordPiece()
    with pytest.raises(DataError, match=r"tokenizer\.json: .*not supported \(seen WordPiece"):
        TokenBytes(made)
