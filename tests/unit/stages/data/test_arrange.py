from __future__ import annotations

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.spec.sections.data import SplitSection
from trainwright.stages.data.arrange import SPLITS, ArrangeJob, arrange_bucket, documents_path, split_of
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import Document, bucket_of, publish_part, read_documents, read_footer

SHARES = SplitSection(train=0.7, validation=0.15, test=0.15)


def digest(text):
    return hashlib.sha256(text.encode()).digest()


def arranged(directory, sources, section, bits, group_of=lambda text: None):
    """Arrange lists of texts, one list per source, and read all buckets back."""
    directory.mkdir()
    parts = []
    for source, texts in enumerate(sources):
        buckets = {}
        for number, text in enumerate(texts):
            item = Document(digest(text), f"{source}:{number}", text.encode(), group=group_of(text))
            buckets.setdefault(bucket_of(item.digest, bits), []).append(item)
        path = directory / f"{source}.part"
        publish_part(path, buckets, {})
        parts.append((source, path, read_footer(path)["sections"]))
    funnels, texts = [Funnel() for _ in sources], {split: [] for split in SPLITS}
    for bucket in range(1 << bits):
        pieces = tuple((source, path, *spans[bucket]) for source, path, spans in parts if bucket in spans)
        job = ArrangeJob(bucket=bucket, pieces=pieces, section=section, directory=directory)
        facts = arrange_bucket(job)
        assert arrange_bucket(job) == facts, "a finished bucket is taken as it is"
        for source, record in facts["funnels"].items():
            funnels[int(source)].merge(Funnel.from_json(record))
        for split in SPLITS:
            texts[split] += [text.decode() for text in read_documents(documents_path(directory, bucket, split))]
    return texts, funnels


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sources=st.lists(st.lists(st.text("abc", max_size=3), max_size=15), min_size=1, max_size=3))
@pytest.mark.parametrize("dedup", ["exact", "none"])
def test_any_number_of_buckets_gives_the_same_as_sorting_in_memory(tmp_path_factory, section, dedup, sources):
    given_section = section({"kind": "python-stdlib"}, dedup=dedup, split=SHARES.model_dump())
    pool = [text for texts in sources for text in texts]
    expected = sorted(set(pool) if dedup == "exact" else pool, key=digest)
    results = [arranged(tmp_path_factory.mktemp("a") / "b", sources, given_section, bits) for bits in (0, 3)]
    for texts, funnels in results:
        assert texts == {split: [t for t in expected if split_of(digest(t), SHARES) == split] for split in SPLITS}
        assert funnels == results[0][1]
        assert sum(funnel.kept.documents for funnel in funnels) == len(expected)
        assert sum(funnel.duplicates.documents for funnel in funnels) == len(pool) - len(expected)


def test_the_first_of_equal_documents_is_kept(tmp_path, section):
    given_section = section({"kind": "python-stdlib"})
    _, funnels = arranged(tmp_path / "a", [["x", "y"], ["y", "x", "x", "z"]], given_section, 0)
    assert [(f.kept.documents, f.duplicates.documents) for f in funnels] == [(2, 0), (1, 3)]
    assert sorted(funnels[1].examples["duplicate"]) == ["1:0", "1:1", "1:2"]


def test_a_group_is_on_one_side_and_its_documents_are_still_kept_once(tmp_path, section):
    texts = [f"{group} {number}" for group in "abcdefgh" for number in range(20)]
    given_section = section({"kind": "python-stdlib"}, split=SHARES.model_dump())
    splits, funnels = arranged(tmp_path / "a", [texts, texts], given_section, 2, group_of=lambda text: text[0])
    sides = {split: {text[0] for text in found} for split, found in splits.items()}
    assert sides == {split: {g for g in "abcdefgh" if split_of(digest(g), SHARES) == split} for split in SPLITS}
    assert len(sides["train"]) > 1 and sum(map(len, splits.values())) == len(texts)
    assert (funnels[0].kept.documents, funnels[1].duplicates.documents) == (len(texts), len(texts))


def test_shares_are_met():
    splits = [split_of(digest(str(number)), SHARES) for number in range(20_000)]
    for split in SPLITS:
        # five standard deviations of a binomial count
        assert abs(splits.count(split) / 20_000 - getattr(SHARES, split)) < 5 * (0.25 / 20_000) ** 0.5


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.3), (0.3, 0.0), (0.0, 0.0)])
def test_a_split_of_no_share_gets_nothing(validation, test):
    shares = SplitSection(train=1 - validation - test, validation=validation, test=test)
    seen = {split_of(digest(str(number)), shares) for number in range(3000)} | {split_of(b"\xff" * 32, shares)}
    wanted = {"train"} | ({"validation"} if validation else set()) | ({"test"} if test else set())
    assert seen == wanted
