"""Questions whose answers are known (``evaluate.questions``): reading them, and whether what a model says is right.

An answer is right to the letter, or in the words of SQuAD's evaluation (Rajpurkar et al., 2016, arXiv 1606.05250):
without case, punctuation and articles. Of answers that are partly right there is an F1 of words. A Chinese, Japanese or
Korean character is a word of its own, as in CMRC 2018 (Cui et al., 2019, arXiv 1810.07366): no space parts words there.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import local_path, regular
from trainwright.spec.sections.evaluate import QuestionsSection

WORST = 20
"""Answers that are shown, the furthest from right first."""
ARTICLES = frozenset(("a", "an", "the"))
_ALONE = "\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_ALONE}]|[^\\s{_ALONE}]+")
METRICS = ("exact_match", "word_match", "word_f1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question and all answers that are right."""

    text: str
    answers: tuple[str, ...]


def read_questions(section: QuestionsSection) -> list[Question]:
    """Returns the questions of a file of JSON lines; empty lines are passed over.

    Raises:
        RecipeError: the path names the home of an unknown user.
        DataError: the file cannot be read, or a line is no question with an answer; it says which.
    """
    path = local_path(section.path)
    try:
        lines = regular(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        seen = getattr(error, "strerror", None) or "bytes that are no UTF-8"
        raise DataError("cannot read the questions", where=path, seen=seen) from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise DataError("no questions here", where=path, expected="a JSON object in each line")
    return [_question(line, section, where=f"{path}:{number}") for number, line in numbered]


def _question(line: str, section: QuestionsSection, *, where: str) -> Question:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError("this line is no JSON", where=where, seen=str(error)) from error
    if not isinstance(record, dict):
        raise DataError("this line is no JSON object", where=where, seen=type(record).__name__)
    text, answers = record.get(section.question_key), record.get(section.answer_key)
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(text, str) or not text:
        raise _without(section.question_key, "question", "a text", record, where)
    if not isinstance(answers, list) or not answers or not all(isinstance(each, str) for each in answers):
        raise _without(section.answer_key, "answer", "a text, or a list of texts that are all right", record, where)
    return Question(text=text, answers=tuple(answers))


def _without(key: str, role: str, expected: str, record: Mapping[str, Any], where: str) -> DataError:
    seen = f"keys {', '.join(map(str, record)) or 'none'}" if key not in record else type(record[key]).__name__
    fix = f"name the key that has it in evaluate.questions.{role}_key" if key not in record else None
    return DataError("no {role} in {key!r}", where=where, seen=seen, expected=expected, fix=fix, role=role, key=key)


def words(text: str) -> list[str]:
    """Returns what an answer is compared by: its words without case, punctuation and articles."""
    kept = (character for character in text.casefold() if not _is_mark(character))
    return [word for word in _WORD.findall("".join(kept)) if word not in ARTICLES]


def _is_mark(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def f1(said: Sequence[str], right: Sequence[str]) -> float:
    """Returns the harmonic mean of the shares of words that two answers have in common; 1 where both have none."""
    if not said or not right:
        return float(not said and not right)
    common = (Counter(said) & Counter(right)).total()
    return 2 * common / (len(said) + len(right))


def scores(question: Question, said: str) -> dict[str, float]:
    """Returns how right an answer is, by the right answer that it is nearest to."""
    heard = words(said)
    right = [words(answer) for answer in question.answers]
    return {
        "exact_match": float(said.strip() in (answer.strip() for answer in question.answers)),
        "word_match": float(heard in right),
        "word_f1": max(f1(heard, each) for each in right),
    }


def summary(questions: Sequence[Question], said: Sequence[str]) -> dict[str, Any]:
    """Returns the record of all answers: means over the questions, and the answers furthest from right."""
    each = [scores(question, answer) for question, answer in zip(questions, said, strict=True)]
    worst = sorted(range(len(each)), key=lambda number: (each[number]["word_f1"], number))[:WORST]
    return {
        "count": len(each),
        "metrics": {name: {"value": sum(one[name] for one in each) / len(each), "unit": ""} for name in METRICS},
        "furthest": [
            {
                "question": questions[number].text,
                "said": said[number],
                "right": questions[number].answers[0],
                "word_f1": each[number]["word_f1"],
            }
            for number in worst
            if each[number]["word_f1"] < 1
        ],
    }
