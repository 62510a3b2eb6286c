"""Labels go with their documents through cleaning, deduplication, split and shards."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}


def texts_of(dataset: TokenDataset, split: str) -> list[str]:
    tokenizer = Tokenizer.from_file(str(dataset.tokenizer_path))
    tokens = dataset.splits[split]
    ends = tokens.document_ends.tolist()
    return [
        tokenizer.decode(tokens.read(start, end - 1).tolist()) for start, end in zip([0, *ends], ends, strict=False)
    ]


def write_labelled(folder, rows):
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "jsonl", "paths": [str(folder)], "label_key": "label"}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_document_keeps_its_own_label(prepare, section, tmp_path, workers):
    rows = [{"text": f"document {n} of {n % 3} " * (1 + n % 5), "label": ["b", "a", 7][n % 3]} for n in range(60)]
    source = write_labelled(tmp_path / "labelled", [*rows, {"text": rows[4]["text"], "label": "late"}])
    done = prepare(section(source, split=SHARES, exec={"workers": workers, "part_documents": 7}))
    dataset = TokenDataset.open(done.out)
    assert (dataset.kind, dataset.labels) == ("documents-with-labels", ("7", "a", "b"))
    expected = {row["text"]: str(row["label"]) for row in rows}
    made = {}
    for split in SHARES:
        labels = [dataset.labels[number] for number in dataset.splits[split].document_labels]
        made |= dict(zip(texts_of(dataset, split), labels, strict=True))
    assert made == expected, "of equal documents the first one's label is kept"


def test_a_record_without_a_usable_label_is_counted_and_named(prepare, section, tmp_path):
    rows = [{"text": "one", "label": "a"}, {"text": "two"}, {"text": "three", "label": 1.5}, {"text": "x", "label": ""}]
    source = write_labelled(
        tmp_path / "labelled", [*rows, {"text": "four", "label": True}, {"text": "five", "label": 0}]
    )
    done = prepare(section(source, split={"train": 1.0, "validation": 0, "test": 0}))
    report = json.loads((done.out / "report.json").read_text())
    broken = report["sources"][0]["broken"]
    assert {reason: tally["documents"] for reason, tally in broken.items()} == {
        "'label' is not a string or whole number": 3,
        "no key 'label'": 1,
    }
    assert TokenDataset.open(done.out).labels == ("0", "a")


def test_a_damaged_label_file_is_named(prepare, section, tmp_path):
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(9)]
    source = write_labelled(tmp_path / "labelled", rows)
    out = prepare(section(source, split={"train": 1.0, "validation": 0, "test": 0})).out
    path = out / "train-00000.labels"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train-00000\.labels: the labels of a token shard are damaged"):
        TokenDataset.open(out)


@pytest.mark.parametrize("part_bytes", [1 << 20, 64])
def test_equal_texts_with_several_labels_are_counted_and_told(prepare, section, tmp_path, part_bytes):
    rows = [{"text": f"text {n}", "label": "a"} for n in range(30)]
    again = [{"text": "text 3", "label": "b"}, {"text": "text 4", "label": "a"}, {"text": "text 7", "label": "c"}]
    source = write_labelled(tmp_path / "labelled", [*rows, *again])
    done = prepare(section(source, exec={"part_bytes": part_bytes}))
    (counts,) = json.loads((done.out / "report.json").read_text())["sources"]
    assert (counts["duplicates"]["documents"], counts["relabelled"]["documents"]) == (3, 2)
    assert sorted(place.rpartition(":")[2] for place in counts["examples"]["relabelled"]) == ["31", "33"]
    (told,) = [text for text in done.messages if "label" in text]
    assert told.startswith("dropped 2 documents equal to an earlier one that has another label (")
    unlike = [{"text": f"text {n}", "label": "a"} for n in range(30)]
    plain = prepare(section(write_labelled(tmp_path / "plain", [*unlike, unlike[3]])), tmp_path / "other")
    assert "relabelled" not in json.loads((plain.out / "report.json").read_text())["sources"][0]


def test_each_class_has_the_shares_whatever_the_parts(prepare, section, tmp_path):
    counts = {"many": 40, "some": 11, "three": 3, "one": 1}
    rows = [{"text": f"{name} {n}", "label": name} for name, count in counts.items() for n in range(count)]
    source = write_labelled(tmp_path / "labelled", rows)
    done = prepare(section(source, split=SHARES), tmp_path / "whole")
    splits = json.loads((done.out / "report.json").read_text())["splits"]
    assert splits["train"]["classes"] == {"many": 28, "one": 1, "some": 8, "three": 1}
    assert splits["validation"]["classes"] == {"many": 6, "one": 0, "some": 1, "three": 1}
    assert splits["test"]["classes"] == {"many": 6, "one": 0, "some": 2, "three": 1}
    dataset = TokenDataset.open(done.out)
    for name, split in dataset.splits.items():
        labels = [dataset.labels[number] for number in split.document_labels]
        assert {label: labels.count(label) for label in counts} == splits[name]["classes"]
    (told,) = [text for text in done.messages if "the class" in text]
    assert told == "the class 'one' is too small for every split: 1 document, none in validation or test"
    parts = {"workers": 2, "part_bytes": 64, "part_documents": 7}
    assert prepare(section(source, split=SHARES, exec=parts), tmp_path / "parts").files == done.files
