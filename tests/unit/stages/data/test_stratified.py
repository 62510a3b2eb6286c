"""Every class is cut by the shares, units are never parted: against the nearest of all possible cuts."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.arrange import side, unit_of
from trainwright.stages.data.parts import Document, publish_part, read_footer
from trainwright.stages.data.stratified import classes_of_splits, missing, splits_of, splits_of_buckets

SHARES = (SplitSection(), SplitSection(train=0.5, validation=0, test=0.5), SplitSection(train=1, validation=0, test=0))
SPLITS = ("train", "validation", "test")


def unit(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def nearest_cuts(sizes: list[int], shares: SplitSection) -> list[str]:
    """Of every place that leaves each split a unit, the one whose documents are nearest to the share; later of two."""
    wanted = [split for split in SPLITS if getattr(shares, split) > 0]
    ends, found, border = [0, *accumulate(sizes)], [], 0.0
    for number, split in enumerate(wanted[:-1]):
        border += getattr(shares, split)
        later = len(wanted) - 1 - number
        least = len(found) + 1
        places = range(least, max(len(sizes) - later, least) + 1)
        best = min(places, key=lambda place: (round(abs(ends[min(place, len(sizes))] - border * ends[-1]), 9), -place))
        found += [split] * (min(best, len(sizes)) - len(found))
    return found + [wanted[-1]] * (len(sizes) - len(found))


@pytest.mark.parametrize("shares", SHARES)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=25))
def test_a_class_is_cut_at_the_nearest_place(shares, sizes) -> None:
    order = sorted(unit(number) for number in range(len(sizes)))
    splits = splits_of({name: Counter(a=size) for name, size in zip(order, sizes, strict=True)}, shares)
    assert [splits[name] for name in order] == nearest_cuts(sizes, shares)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40)))
def test_every_class_with_enough_units_is_in_every_split(counts) -> None:
    units = {unit((name, number)): Counter([name]) for name, count in counts.items() for number in range(count)}
    splits = splits_of(units, SplitSection())
    assert splits == splits_of(dict(reversed(units.items())), SplitSection())
    for name, count in counts.items():
        seen = Counter(splits[unit((name, number))] for number in range(count))
        assert list(seen) and len(seen) == min(count, 3) and seen["train"] >= 1
        for split, share in zip(SPLITS, (0.7, 0.15, 0.15), strict=True):
            assert abs(seen[split] - share * count) <= 1 or count < 10


def test_documents_of_two_classes_in_one_unit_go_together_under_the_commoner() -> None:
    mixed = {unit(number): Counter({"a": 1, "b": 2}) for number in range(10)}
    splits = splits_of(mixed | {unit("even"): Counter({"z": 1, "y": 1})}, SplitSection())
    assert Counter(splits[name] for name in mixed) == {"train": 7, "validation": 2, "test": 1}
    assert splits[unit("even")] == "train"


def test_the_order_of_a_split_does_not_follow_the_order_of_documents() -> None:
    document = Document(unit("x"), "x", b"x", "a")
    assert sorted(unit_of(document)) == sorted(side(document))
    assert unit_of(document)[:8] == side(document)[8:16]


@pytest.mark.parametrize("exact", [True, False])
def test_buckets_and_groups(tmp_path, exact) -> None:
    documents = [
        Document(unit(n), str(n), str(n).encode() * n, "ab"[n % 2], group=f"g{n // 4}" if n < 40 else None)
        for n in (*range(60), 3, 59, 59)
    ]
    results = []
    for bits in (0, 2):
        buckets: dict[int, list[Document]] = {}
        for document in documents:
            buckets.setdefault(document.digest[0] >> (8 - bits), []).append(document)
        path = tmp_path / f"{bits}.part"
        publish_part(path, buckets, {})
        spans = read_footer(path)["sections"]
        splits = splits_of_buckets([[(0, path, *spans[number])] for number in sorted(spans)], SHARES[0], exact=exact)
        for number, here in zip(sorted(spans), splits, strict=True):
            assert here.keys() == {unit_of(document) for document in buckets[number]}
        results.append({name: split for here in splits for name, split in here.items()})
    assert results[0] == results[1]
    units: dict[bytes, Counter[str]] = {}
    for document in documents[:60] if exact else documents:
        units.setdefault(unit_of(document), Counter())[str(document.label)] += 1
    assert results[0] == splits_of(units, SHARES[0])


def test_a_class_too_small_for_every_split_is_named() -> None:
    counts = classes_of_splits({"train": {"b": 1, "a": 7}, "validation": {"a": 1}, "test": {"a": 2}})
    assert counts["test"] == {"a": 2, "b": 0}
    assert list(missing(counts, SPLITS)) == [
        "the class 'b' is too small for every split: 1 document, none in validation or test"
    ]
    assert list(missing(counts, ["train"])) == []
    assert list(missing(classes_of_splits({split: {} for split in SPLITS}), SPLITS)) == []
