"""What is kept of the first network: whole or not at all, of this dataset or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fixtures.pairs import write_pairs
from trainwright.core.errors import DataError
from trainwright.model.tasks.preferences.references import FILE, missing_splits, read_references, write_split


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return write_pairs(folder, [(5, 6), (4, 7)], splits=("train", "validation"))


def written(folder, dataset, name):
    write_split(folder, dataset, name, [(np.array([2, 3]), np.array([-1.5, -2], np.float32))])


def test_what_is_written_is_read(dataset, tmp_path):
    assert missing_splits(tmp_path, dataset) == ["train", "validation"]
    written(tmp_path, dataset, "train")
    assert missing_splits(tmp_path, dataset) == ["validation"]
    written(tmp_path, dataset, "validation")
    found = read_references(tmp_path, dataset)
    assert found["train"][:5].tolist() == [0, 0, -1.5, -2, 0]
    assert len(found["train"]) == dataset.splits["train"].tokens
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_what_is_missing_is_named(dataset, tmp_path):
    with pytest.raises(DataError, match=rf"no reference log-probabilities .*seen no {FILE}"):
        read_references(tmp_path, dataset)
    written(tmp_path, dataset, "train")
    with pytest.raises(DataError, match="seen none of validation"):
        read_references(tmp_path, dataset)


def test_a_changed_file_and_another_dataset_are_none(dataset, tmp_path):
    for name in dataset.splits:
        written(tmp_path, dataset, name)
    other = tmp_path / "other"
    other.mkdir()
    assert missing_splits(tmp_path, write_pairs(other, [(5, 6), (4, 8)], splits=("train", "validation")))
    (tmp_path / "train.references").write_bytes(b"\0" * 4 * dataset.splits["train"].tokens)
    assert missing_splits(tmp_path, dataset) == ["train"]
    record = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(record | {"format": 9}))
    assert missing_splits(tmp_path, dataset) == ["train", "validation"]
    (tmp_path / FILE).write_text("{")
    with pytest.raises(DataError, match="damaged list of references"):
        missing_splits(tmp_path, dataset)
