"""Answers are held against what is right: numbers worked out by hand from the definitions."""

from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError
from trainwright.spec.sections.evaluate import QuestionsSection
from trainwright.stages.evaluate.questions import Question, f1, read_questions, scores, summary, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat, and a HAT!", ["cat", "and", "hat"]),
        ("`shutil.copytree`", ["shutilcopytree"]),
        ("北京 2008年。", ["北", "京", "2008", "年"]),
        ("Straße", ["strasse"]),
        ("  the  ", []),
    ],
)
def test_words_have_no_case_marks_or_articles(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("said", "right", "expected"),
    [
        (["a", "b", "c", "d"], ["b", "c", "x"], 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)),
        (["b", "b"], ["b"], 2 * (1 / 2) * 1 / (1 / 2 + 1)),
        (["x"], ["y"], 0.0),
        ([], ["y"], 0.0),
        ([], [], 1.0),
    ],
)
def test_f1_is_the_harmonic_mean_of_both_shares(said, right, expected):
    assert f1(said, right) == pytest.approx(expected)


def test_the_nearest_right_answer_counts():
    asked = Question(text="?", answers=("in Paris", "Paris"))
    assert scores(asked, " Paris\n") == {"exact_match": 1.0, "word_match": 1.0, "word_f1": 1.0}
    assert scores(asked, "paris.") == {"exact_match": 0.0, "word_match": 1.0, "word_f1": 1.0}
    assert scores(asked, "Paris, France") == {"exact_match": 0.0, "word_match": 0.0, "word_f1": pytest.approx(2 / 3)}


def test_means_are_over_questions_and_the_furthest_come_first():
    asked = [Question(text=text, answers=("one two",)) for text in "abcd"]
    record = summary(asked, ["one two", "one", "", "One two"])
    shares = {name: metric["value"] for name, metric in record["metrics"].items()}
    assert shares == {"exact_match": 0.25, "word_match": 0.5, "word_f1": pytest.approx((1 + 2 / 3 + 0 + 1) / 4)}
    assert [each["question"] for each in record["furthest"]] == ["c", "b"]


@pytest.fixture
def written(tmp_path):
    def write(*lines: object) -> QuestionsSection:
        path = tmp_path / "q.jsonl"
        path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
        return QuestionsSection(path=str(path))

    return write


def test_one_answer_or_several_may_be_right(written):
    section = written({"question": "1+1?", "answer": "2"}, "", {"question": "a\u2028b", "answer": ["x", "y"], "id": 3})
    assert read_questions(section) == [
        Question(text="1+1?", answers=("2",)),
        Question(text="a\u2028b", answers=("x", "y")),
    ]


@pytest.mark.parametrize(
    ("line", "what", "seen"),
    [
        ("{", "this line is no JSON", "Expecting property name"),
        ([1], "this line is no JSON object", "list"),
        ({"answer": "x"}, "no question in 'question'", "keys answer"),
        ({"question": "", "answer": "x"}, "no question in 'question'", "str"),
        ({"question": "x", "a": 1}, "no answer in 'answer'", "keys question, a"),
        ({"question": "x", "answer": []}, "no answer in 'answer'", "list"),
        ({"question": "x", "answer": ["y", 2]}, "no answer in 'answer'", "list"),
    ],
)
def test_a_line_that_is_no_question_is_named(written, line, what, seen):
    section = written({"question": "x", "answer": "y"}, line)
    with pytest.raises(DataError, match=what) as error:
        read_questions(section)
    assert str(error.value.where) == f"{section.path}:2"
    assert str(error.value.seen).startswith(seen)


def test_a_file_without_questions_is_refused(written, tmp_path):
    with pytest.raises(DataError, match="no questions here"):
        read_questions(written("", " "))
    with pytest.raises(DataError, match="cannot read the questions .*No such file"):
        read_questions(QuestionsSection(path=str(tmp_path / "none.jsonl")))
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")
    with pytest.raises(DataError, match="bytes that are no UTF-8"):
        read_questions(QuestionsSection(path=str(tmp_path / "latin.jsonl")))
