"""Equal images are in one split whatever is kept of them, and each is counted under its class."""

from __future__ import annotations

import hashlib

from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.images.splits import Seen
from trainwright.stages.data.parts import Document


def image(text: str, label: str) -> Document:
    return Document(hashlib.sha256(text.encode()).digest(), f"{label}/{text}", text.encode(), label)


def test_of_equal_images_the_first_is_kept_and_the_others_are_named() -> None:
    seen, funnels = Seen(exact=True), [Funnel()]
    kept = seen.bucket([(0, image("x", "cat")), (0, image("y", "dog")), (0, image("x", "cat")), (0, image("x", "dog"))])
    assert sorted(each.text for each in kept) == [b"x", b"y"]
    assert [each.digest for each in kept] == sorted(each.digest for each in kept)
    seen.add_to(funnels)
    assert (funnels[0].kept.documents, funnels[0].duplicates.documents, funnels[0].relabelled.documents) == (2, 2, 1)
    assert funnels[0].examples == {"duplicate": ["cat/x", "dog/x"], "relabelled": ["dog/x"]}


def test_equal_images_that_are_all_kept_are_in_one_split_under_their_own_labels() -> None:
    seen = Seen(exact=False)
    seen.bucket([(0, image("x", "cat")), (0, image("x", "dog")), (0, image("y", "dog"))])
    assert seen.names == ("cat", "dog")
    splits = seen.splits(SplitSection(train=0.5, validation=0, test=0.5))
    counts = seen.counts(splits)
    assert sum(sum(each.values()) for each in counts.values()) == 3
    assert counts[splits[image("x", "cat").digest]]["cat"] == 1
    assert counts[splits[image("x", "cat").digest]]["dog"] >= 1
