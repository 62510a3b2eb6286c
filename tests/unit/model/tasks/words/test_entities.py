"""Entities by hand, and by every sequence of labels against what a scheme says in one sentence."""

from __future__ import annotations

import re
from itertools import product

import pytest

from trainwright.model.tasks.words.entities import ENDS, EntityCounts, entities, is_broken, scheme_of


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (["O", "B-PER", "I-PER"], "IOB2"),
        (["O", "B-PER"], "IOB2"),
        (["O", "B-PER", "I-PER", "E-PER", "S-LOC"], "IOBES"),
        (["O", "B-PER", "L-PER", "U-LOC"], "BILOU"),
        (["B-PER", "E-PER", "U-PER"], None),
        (["O", "I-PER"], None),
        (["NOUN", "VERB", "O"], None),
        (["O", "B-"], None),
        (["O"], None),
        ([], None),
    ],
)
def test_labels_tell_their_scheme(labels, scheme) -> None:
    assert scheme_of(labels) == scheme


def by_pattern(labels, scheme) -> set[tuple[int, int, str]]:
    """Of each kind the stretches that a pattern matches, a letter for each word; other kinds are not of it."""
    last, single = ENDS[scheme]
    pattern = re.compile("BI*" if not last else f"BI*{last}|{single}")
    found = set()
    for kind in {label[2:] for label in labels if label != "O"}:
        letters = "".join(label[0] if label[2:] == kind else "." for label in labels)
        found |= {(match.start(), match.end(), kind) for match in pattern.finditer(letters)}
    return found


@pytest.mark.parametrize(("scheme", "length"), [("IOB2", 5), ("IOBES", 4), ("BILOU", 4)])
def test_every_short_sequence_has_the_entities_of_its_pattern(scheme, length) -> None:
    letters = "BI" + "".join(ENDS[scheme])
    alphabet = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "xy")]
    for size in range(length + 1):
        for labels in product(alphabet, repeat=size):
            found = list(entities(labels, scheme))
            assert found == sorted(by_pattern(labels, scheme)), labels
            inside = {place for first, stop, _ in found for place in range(first, stop)}
            outside = {place for place, label in enumerate(labels) if label == "O"}
            assert is_broken(labels, scheme) == (inside | outside != set(range(size)))


def test_precision_recall_and_f1_by_hand() -> None:
    counts = EntityCounts("IOB2")
    assert counts.rates() == {"precision": None, "recall": None, "f1": None}
    misc = ["B-MISC", "I-MISC", "I-MISC"]
    counts.add(["O", "O", "O", *misc, "O"], ["O", "O", *misc, "I-MISC", "O"])
    counts.add(["B-PER", "I-PER", "O"], ["B-PER", "I-PER", "O"])
    assert counts.rates() == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    # Told: two of PER, one right; of LOC none, where one is; the first I is of no entity.
    counts.add(["B-PER", "O", "B-LOC"], ["B-PER", "I-LOC", "B-PER"])
    assert counts.rates() == {"precision": 2 / 4, "recall": 2 / 4, "f1": 0.5}
    assert counts.by_kind() == [
        {"entity": "LOC", "entities": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
        {"entity": "MISC", "entities": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
        {"entity": "PER", "entities": 2, "precision": 2 / 3, "recall": 1.0, "f1": 4 / 5},
    ]
