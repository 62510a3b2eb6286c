"""From folders to shards: every image once, under its class, in one split; broken ones are named."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.stages.data.check import problems

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}


@pytest.fixture
def asked(section):
    """Builds the data section of images."""

    def build(root, **keys):
        images = {"size": 6, "colour": "rgb"} | keys.pop("images", {})
        source = {"kind": "images", "paths": [str(root)]}
        return section(source, images=images, tokenizer={}, **{"split": SHARES} | keys)

    return build


def found(dataset):
    """Returns each image's class and split by its bytes."""
    form = dataset.images
    return {
        split.read(n * form.values, (n + 1) * form.values).tobytes(): (dataset.labels[split.document_labels[n]], name)
        for name, split in dataset.splits.items()
        for n in range(split.documents)
    }


@pytest.mark.parametrize("keys", [{}, {"workers": 2, "part_documents": 3, "part_bytes": 500}])
def test_every_image_is_stored_once_under_its_class(prepare, asked, pictures, keys):
    root = pictures(20)
    done = prepare(asked(root, exec={"workers": 1} | keys))
    dataset = TokenDataset.open(done.out)
    expected = {np.asarray(Image.open(path)).tobytes(): path.parent.name for path in root.glob("*/*.png")}
    made = found(dataset)
    assert {pixels: label for pixels, (label, _) in made.items()} == expected
    counts = {"train": 28, "validation": 6, "test": 6}
    assert {name: split.documents for name, split in dataset.splits.items()} == counts
    assert [list(made.values()).count(("cat", split)) for split in SHARES] == [14, 3, 3]
    assert dataset.splits["train"].read(0, 6).dtype == np.uint8
    report = json.loads((done.out / "report.json").read_text())
    assert report["splits"]["test"]["classes"] == {"cat": 3, "dog": 3}
    assert done.result.summary == {"images": counts, "classes": 2, "size": 6, "channels": 3}


def test_workers_and_parts_change_no_byte(prepare, asked, pictures, tmp_path):
    root = pictures(15)
    one = prepare(asked(root), out=tmp_path / "one")
    many = prepare(asked(root, exec={"workers": 2, "part_documents": 2, "part_bytes": 300}), out=tmp_path / "many")
    assert one.files == many.files


def test_an_interrupted_run_takes_up_its_parts(prepare, asked, pictures, tmp_path, monkeypatch):
    root = pictures(8)
    whole = prepare(asked(root), out=tmp_path / "whole")
    part = tmp_path / "part"
    monkeypatch.setattr("trainwright.stages.data.images.stage.publish_report", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(asked(root), out=part)
    monkeypatch.undo()
    monkeypatch.setattr("trainwright.stages.data.sources.images.decoded", lambda _: pytest.fail("decoded twice"))
    assert prepare(asked(root), out=part).files == whole.files


def test_normalisation_is_of_the_train_split_alone(prepare, asked, pictures):
    done = prepare(asked(pictures(20), images={"colour": "grey"}))
    dataset = TokenDataset.open(done.out)
    split = dataset.splits["train"]
    values = split.read(0, split.tokens) / 255
    assert dataset.images.mean == pytest.approx((values.mean(),))
    assert dataset.images.std == pytest.approx((values.std(),))
    processor = json.loads((done.out / "preprocessor_config.json").read_text())
    assert processor["image_mean"] == [dataset.images.mean[0]] * 3


def test_broken_images_are_counted_and_named(prepare, asked, pictures):
    root = pictures(10)
    (root / "cat" / "text.png").write_text("no image")
    (root / "stray.png").write_bytes((root / "cat" / "000.png").read_bytes())
    shutil.copy(root / "cat" / "001.png", root / "dog" / "copy.png")
    done = prepare(asked(root))
    report = json.loads((done.out / "report.json").read_text())["sources"][0]
    assert {reason: tally["documents"] for reason, tally in report["broken"].items()} == {
        "in no folder that could be its class": 1,
        "not an image": 1,
    }
    assert report["examples"] == {
        "duplicate": ["dog/copy.png"],
        "in no folder that could be its class": ["stray.png"],
        "not an image": ["cat/text.png"],
        "relabelled": ["dog/copy.png"],
    }
    assert report["kept"]["documents"] == 20
    assert any("not an image (cat/text.png)" in message for message in done.messages)
    with pytest.raises(DataError, match="broken record: not an image"):
        prepare(asked(root, strict=True), out=done.out.parent / "strict")


def test_a_folder_without_any_image_is_refused_before_anything_runs(asked, tmp_path):
    folder = tmp_path / "none" / "cat"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.png").write_text("text")
    (problem,) = problems(asked(folder.parent))
    assert len(str(problem).splitlines()) == 1
    assert (problem.where, problem.seen) == ("data.sources.0", "cat/0.png: not an image")
