from __future__ import annotations

import pytest

from trainwright.stages.data.words.records import NoSentence, sentence, text_of, words_of


def test_a_sentence_is_its_words_and_their_labels() -> None:
    form, label = sentence(["你好", 'a "b'], ["O", 3])
    assert (words_of(form), words_of(label)) == (["你好", 'a "b'], ["O", "3"])
    assert text_of(words_of(form)) == '你好 a "b'


@pytest.mark.parametrize(
    ("words", "labels", "reason"),
    [
        ("a b", ["O"], "the words are not a list of texts"),
        (["a", 1], ["O", "O"], "the words are not a list of texts"),
        ([], [], "no word"),
        (["a", " "], ["O", "O"], "an empty word"),
        (["a"], None, "the labels are not a list of texts or whole numbers"),
        (["a"], [""], "the labels are not a list of texts or whole numbers"),
        (["a"], [True], "the labels are not a list of texts or whole numbers"),
        (["a", "b"], ["O"], "another number of labels than of words"),
    ],
)
def test_what_is_no_sentence_has_a_reason(words, labels, reason) -> None:
    with pytest.raises(NoSentence, match=reason):
        sentence(words, labels)
