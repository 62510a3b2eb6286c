"""What texts and images share: parts of another corpus are not taken up, empty splits are named."""

from __future__ import annotations

import pytest

from trainwright.artifact.events import Events
from trainwright.core.errors import DataError
from trainwright.stages.data.corpus.entries import SkippedFile
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.preparation import LAYOUT, Preparation

HALVES = {"train": 0.5, "validation": 0.0, "test": 0.5}


@pytest.fixture
def made(section, tmp_path):
    """Builds a preparation of a folder with one text, and gives the messages that it sends."""

    def build(digests=None, **keys):
        folder = tmp_path / "texts"
        folder.mkdir(exist_ok=True)
        (folder / "a.txt").write_text("a text")
        messages = []
        events = Events(None, run="test", listeners=(lambda e: messages.append(e.text),))
        (tmp_path / "out").mkdir(exist_ok=True)
        rules = section({"kind": "files", "paths": [str(folder)]}, **{"split": HALVES} | keys)
        return Preparation(rules, tmp_path / "out", events, tmp_path, digests or {}), messages

    return build


def funnel(kept=0, **broken):
    result = Funnel()
    for reason, count in broken.items():
        for number in range(count):
            result.lose(result.broken, reason, 1, f"{reason}-{number}")
            result.read.add(1)
    for _ in range(kept):
        result.kept.add(1)
        result.read.add(1)
    return result


def test_parts_are_kept_for_the_same_corpus_settings_and_buckets_alone(made):
    preparation, _ = made()
    corpus = preparation.corpus()
    preparation.open_parts(corpus, 2)
    part = preparation.parts / "read-000000-00000.part"
    part.write_text("scratch")
    (preparation.parts / "half.tmp").write_text("")
    made()[0].open_parts(corpus, 2)
    assert sorted(path.name for path in preparation.parts.iterdir()) == [LAYOUT, part.name]
    made(dedup="none")[0].open_parts(corpus, 2)
    assert [path.name for path in preparation.parts.iterdir()] == [LAYOUT]
    part.write_text("scratch")
    made(dedup="none")[0].open_parts(corpus, 3)
    assert not part.exists()


def test_a_corpus_that_is_not_the_one_of_the_address_is_refused(made):
    with pytest.raises(DataError, match="while its digest was taken"):
        made(digests={"corpus": "of another one"})[0].corpus()


def test_what_is_broken_is_told_once_and_splits_with_shares_are_written(made):
    preparation, messages = made()
    skipped = [SkippedFile(source=0, name="x", location="/x", reason="socket")]
    splits = preparation.check_splits([funnel(kept=4, torn=2, socket=1)], {"train": 2, "test": 2}, skipped)
    assert splits == ["train", "test"]
    assert messages == ["skipped 2 broken records: torn (torn-0, torn-1)"]


def test_a_split_that_has_a_share_and_nothing_in_it_is_refused(made):
    with pytest.raises(DataError, match="the test split is empty") as caught:
        made()[0].check_splits([funnel(kept=1)], {"train": 1, "test": 0}, [])
    assert "raise data.split.test, or set it to 0" in str(caught.value)
    with pytest.raises(DataError, match="no document is left") as caught:
        made()[0].check_splits([funnel(torn=3)], {"train": 0, "test": 0}, [])
    assert (caught.value.where, caught.value.seen) == ("data.sources.0", "3 records, most of them: torn")


def test_how_long_a_phase_took_is_kept(made):
    preparation, _ = made()
    assert preparation.timed("read", lambda: 7) == 7
    assert preparation.seconds["read"] >= 0
