"""Each class has the shares; equal images are in one split whatever is kept of them."""

from __future__ import annotations

import hashlib
from collections import Counter

from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.images.splits import Seen, splits_of
from trainwright.stages.data.parts import Document


def image(text: str, label: str) -> Document:
    return Document(hashlib.sha256(text.encode()).digest(), f"{label}/{text}", text.encode(), label)


def labels(**counts: int) -> dict[bytes, list[str]]:
    return {image(f"{name}{n}", name).digest: [name] for name, count in counts.items() for n in range(count)}


def test_every_class_is_cut_by_the_shares_to_the_nearest_image() -> None:
    given = labels(many=100, few=10, two=2, one=1)
    splits = splits_of(given, SplitSection())
    counts = Counter((given[digest][0], split) for digest, split in splits.items())
    assert [counts["many", split] for split in ("train", "validation", "test")] == [70, 15, 15]
    assert [counts["few", split] for split in ("train", "validation", "test")] == [7, 2, 1]
    assert [counts["two", split] for split in ("train", "validation", "test")] == [1, 1, 0]
    assert counts["one", "train"] == 1


def test_the_order_in_which_images_were_found_does_not_matter() -> None:
    given = labels(a=31, b=17)
    backwards = dict(reversed(given.items()))
    shares = SplitSection(train=0.5, validation=0, test=0.5)
    splits = splits_of(given, shares)
    assert splits == splits_of(backwards, shares)
    assert set(splits.values()) == {"train", "test"}


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
    splits = splits_of(seen.labels, SplitSection(train=0.5, validation=0, test=0.5))
    counts = seen.counts(splits)
    assert sum(sum(each.values()) for each in counts.values()) == 3
    assert counts[splits[image("x", "cat").digest]]["cat"] == 1
    assert counts[splits[image("x", "cat").digest]]["dog"] >= 1
