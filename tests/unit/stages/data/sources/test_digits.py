"""The digits are those that scikit-learn's own function returns."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from trainwright.core.errors import MissingPackage
from trainwright.spec.sections.corpus.sources import DigitsSource
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.check import problems
from trainwright.stages.data.corpus.head import labels_at_head
from trainwright.stages.data.corpus.size import corpus_bytes
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.digits import IMAGES

SECTION = DigitsSource(kind="sklearn-digits")
DATA = DataSection.model_validate({"sources": [{"kind": "sklearn-digits"}], "images": {"size": 8, "colour": "grey"}})


def test_they_are_those_of_the_library(read):
    datasets = pytest.importorskip("sklearn.datasets", reason="pip install 'trainwright[digits]'")
    records = read(Path(*source_of(SECTION).paths), SECTION)
    pixels, digits = datasets.load_digits(return_X_y=True)
    assert len(records) == len(digits) == IMAGES
    assert [record.label for record in records] == [str(digit) for digit in digits]
    for record, row in zip(records, pixels, strict=True):
        assert np.array_equal(record.pixels.flatten(), np.rint(row * 255 / 16))
    assert Counter(record.label for record in records)["3"] == 183
    assert problems(DATA) == ()
    assert labels_at_head(DATA) == tuple("0123456789")


def test_a_damaged_line_is_a_broken_record(tmp_path, read, written):
    good = ",".join(["16"] * 64 + ["7"])
    path = written(tmp_path / "digits.csv.gz", gzip.compress(f"{good}\n1,2\n{good[:-1]}x\n".encode()))
    first, second, third = read(path, SECTION)
    assert (first.label, set(first.pixels.flatten().tolist())) == ("7", {255})
    assert (second.position, second.problem) == (":2", "not 64 pixels and a digit")
    assert (third.position, third.problem) == (":3", "not 64 pixels and a digit")


def test_without_the_package_a_check_names_it_and_sizes_are_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    (problem,) = problems(DATA)
    assert isinstance(problem, MissingPackage)
    assert problem.where == "data.sources.0.kind"
    assert "scikit-learn" in str(problem) and "trainwright[digits]" in str(problem)
    assert corpus_bytes(DATA) == 1797 * 64
