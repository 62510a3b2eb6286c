"""The class of an image is its folder; what does not decode is a record with a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from trainwright.spec.sections.corpus.sources import ImagesSource
from trainwright.stages.data.corpus.documents import raw_documents
from trainwright.stages.data.corpus.entries import FileRange
from trainwright.stages.data.corpus.files import source_entries
from trainwright.stages.data.sources.images import Images


def section(*paths):
    return ImagesSource(kind="images", paths=tuple(map(str, paths)))


def listed(*paths):
    return {entry.name: entry for entry in source_entries(0, section(*paths))}


@pytest.fixture
def root(tmp_path):
    for name in ("a/cat/1.png", "a/cat/deep/2.png", "a/3.PNG", "b/dog/4.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), len(name), np.uint8)).save(path)
    (tmp_path / "a" / "notes.txt").write_text("no image by its name")
    return tmp_path


def test_the_class_is_the_first_folder_below_the_path(root):
    source = Images(section(root / "a"))
    labels = {name: source.label(entry) for name, entry in listed(root / "a").items()}
    assert labels == {"cat/1.png": "cat", "cat/deep/2.png": "cat", "3.PNG": None}


def test_of_several_paths_the_number_of_the_path_is_no_class(root):
    paths = (root / "a", root / "b")
    source = Images(section(*paths))
    labels = {name: source.label(entry) for name, entry in listed(*paths).items()}
    assert labels == {"0/cat/1.png": "cat", "0/cat/deep/2.png": "cat", "0/3.PNG": None, "1/dog/4.png": "dog"}


def test_a_file_is_an_image_or_says_why_not(root, as_file):
    good = as_file(root / "a" / "cat" / "1.png")
    (record,) = raw_documents(FileRange(file=replace(good, name="cat/1.png")), section(root))
    assert (record.label, record.pixels.tolist()) == ("cat", [[11, 11], [11, 11]])
    (record,) = raw_documents(FileRange(file=good), section(root))
    assert (record.whole, record.problem) == (False, "in no folder that could be its class")
    text = as_file(root / "a" / "notes.txt")
    (record,) = raw_documents(FileRange(file=replace(text, name="cat/notes.txt")), section(root))
    assert record.problem == "not an image"
