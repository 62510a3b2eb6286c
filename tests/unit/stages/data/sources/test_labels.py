"""Sets of labels in records, and that every source gives the same ones."""

from __future__ import annotations

import json
from decimal import Decimal
from math import sqrt

import pytest

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.spec.parts.targets import TargetScale
from trainwright.stages.data.sources.labels import names_in, number_of, set_in, set_of
from trainwright.stages.data.tokens import encode

SHARES = {"train": 1.0, "validation": 0, "test": 0}
SETS = {"one": ["b", "a"], "two": [], "three": ["a", "c d", "a"]}


def test_a_set_is_sorted_and_has_each_name_once() -> None:
    assert set_of(["b", "a", "b", 7, " é "]) == '["7", "a", "b", "é"]'
    assert set_of([]) == set_in("", ";") == set_in(" ; ", ";") == "[]"
    assert set_in("b|a |b", "|") == '["a", "b"]'
    assert names_in(['["b"]', "[]", '["a", "b"]']) == ("a", "b")


@pytest.mark.parametrize("value", [None, "a", 3, {"a": 1}, ["a", ""], ["a", None], [True], [1.5], [["a"]]])
def test_what_is_no_list_of_names_is_no_set(value) -> None:
    assert set_of(value) is None


def write(folder, kind: str) -> dict[str, object]:
    rows = [{"text": text, "tags": tags} for text, tags in SETS.items()]
    path = folder / f"a.{kind}"
    source = {"kind": kind, "paths": [str(path)], "label_kind": "names"}
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return source | {"label_key": "tags"}
    if kind == "csv":
        path.write_text("text,tags\n" + "".join(f"{row['text']},{'|'.join(row['tags'])}\n" for row in rows))
        return source | {"label_column": "tags", "label_separator": "|"}
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    return source | {"label_column": "tags"}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_dataset_says_which_labels_each_document_has(prepare, section, tmp_path, kind) -> None:
    dataset = TokenDataset.open(prepare(section(write(tmp_path, kind), split=SHARES)).out)
    assert (dataset.kind, dataset.labels) == ("documents-with-label-sets", ("a", "b", "c d"))
    split = dataset.splits["train"]
    sizes = dict(zip(split.document_bytes.tolist(), split.document_labels.tolist(), strict=True))
    found = {size: [dataset.labels[each] for each in dataset.label_sets[number]] for size, number in sizes.items()}
    if len(sizes) == 2:  # "one" and "two" are equally long, in the order of hashes
        del found[3]
        pairs = [dataset.label_sets[number] for number in split.document_labels]
        assert sorted(map(len, pairs)) == [0, 2, 2]
    assert found == {5: ["a", "c d"]}


def test_texts_in_parquet_are_cut_at_the_separator(prepare, section, tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow")
    rows = [{"text": "one", "tags": "x;y"}, {"text": "two", "tags": " "}, {"text": "three", "tags": None}]
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    source = {"kind": "parquet", "paths": [str(tmp_path)], "label_column": "tags", "label_kind": "names"}
    done = prepare(section(source, split=SHARES))
    dataset = TokenDataset.open(done.out)
    assert (dataset.labels, sorted(dataset.label_sets)) == (("x", "y"), [(), (0, 1)])
    (counts,) = json.loads((done.out / "report.json").read_text())["sources"]
    assert {reason: tally["documents"] for reason, tally in counts["broken"].items()} == {"'tags' is empty": 1}


def test_a_record_without_a_list_is_counted_and_named(prepare, section, tmp_path) -> None:
    rows = [
        {"text": "one", "tags": ["a"]},
        {"text": "two"},
        {"text": "three", "tags": "a"},
        {"text": "x", "tags": [1.5]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "jsonl", "paths": [str(tmp_path)], "label_key": "tags", "label_kind": "names"}
    (counts,) = json.loads((prepare(section(source, split=SHARES)).out / "report.json").read_text())["sources"]
    assert {reason: tally["documents"] for reason, tally in counts["broken"].items()} == {
        "'tags' is not a list of strings or whole numbers": 2,
        "no key 'tags'": 1,
    }


def test_more_sets_than_numbers_for_them_are_refused(prepare, section, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(encode, "MOST_LABELS", 2)
    with pytest.raises(DataError, match=r"too many different labels, or sets of labels.*seen 3, expected at most 2"):
        prepare(section(write(tmp_path, "jsonl"), split=SHARES))


@pytest.mark.parametrize(
    ("value", "carried"),
    [(3, "3.0"), (0.1, "0.1"), (-0.0, "0.0"), (" 1e-3 ", "0.001"), ("+.5", "0.5"), (Decimal("2.50"), "2.5")],
)
def test_a_number_is_written_so_that_it_comes_back(value, carried) -> None:
    assert number_of(value) == carried


def test_what_is_no_finite_number_is_none() -> None:
    texts = ["", "a", "nan", "inf", "1_000", "1,5", "0x1", "1e999"]
    for value in (*texts, None, True, float("nan"), float("inf"), 10**400, [1]):
        assert number_of(value) is None, value


NUMBERS = {"one": 1.5, "three": 4, "eleven": 1e20}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_dataset_has_the_number_of_each_document_and_their_scale(prepare, section, tmp_path, kind) -> None:
    path, rows = tmp_path / f"a.{kind}", [{"text": text, "y": number} for text, number in NUMBERS.items()]
    bad = {"jsonl": ['"2"', "NaN", "null", "true", "1e999"], "csv": ["", "x", "nan"], "parquet": []}[kind]
    if kind == "jsonl":
        spoilt = [f'{{"text": "bad {number}", "y": {value}}}\n' for number, value in enumerate(bad)]
        path.write_text("".join([*(json.dumps(row) + "\n" for row in rows), *spoilt, '{"text": "none"}\n']))
    elif kind == "csv":
        path.write_text("text,y\n" + "".join(f"{row['text']},{row['y']}\n" for row in rows))
        path.write_text(path.read_text() + "".join(f"bad {number},{value}\n" for number, value in enumerate(bad)))
    else:
        arrow = pytest.importorskip("pyarrow")
        spoilt = [{"text": "bad", "y": float("nan")}, {"text": "none", "y": None}]
        table = arrow.Table.from_pylist([row | {"y": float(row["y"])} for row in rows] + spoilt)
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    key = "label_key" if kind == "jsonl" else "label_column"
    source = {"kind": kind, "paths": [str(path)], "label_kind": "number", key: "y"}
    done = prepare(section(source, split=SHARES))
    dataset = TokenDataset.open(done.out)
    assert (dataset.kind, dataset.labels) == ("documents-with-numbers", ())
    split = dataset.splits["train"]
    by_size = {len(text): number for text, number in NUMBERS.items()}
    found = zip(split.document_bytes.tolist(), split.document_numbers.tolist(), strict=True)
    assert dict(found) == by_size
    mean = sum(by_size.values()) / 3
    std = sqrt(sum((number - mean) ** 2 for number in by_size.values()) / 3)
    assert (dataset.scale.mean, dataset.scale.std) == pytest.approx((mean, std))
    (counts,) = json.loads((done.out / "report.json").read_text())["sources"]
    assert {reason: tally["documents"] for reason, tally in counts["broken"].items()} == {
        "jsonl": {"'y' is not a finite number": 5, "no key 'y'": 1},
        "csv": {"'y' is empty": 1, "'y' is not a finite number": 2},
        "parquet": {"'y' is empty": 1, "'y' is not a finite number": 1},
    }[kind]


def test_the_scale_is_that_of_the_train_split_alone(prepare, section, tmp_path) -> None:
    rows = [{"text": f"text {number}", "y": float(number)} for number in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "jsonl", "paths": [str(tmp_path)], "label_key": "y", "label_kind": "number"}
    dataset = TokenDataset.open(prepare(section(source, split={"train": 0.6, "validation": 0.2, "test": 0.2})).out)
    numbers = {name: split.document_numbers for name, split in dataset.splits.items()}
    assert sorted(number for each in numbers.values() for number in each) == list(range(60))
    assert dataset.scale == TargetScale.of(numbers["train"].tolist())
    assert dataset.scale.mean != 29.5


def test_numbers_that_cannot_be_averaged_are_refused(prepare, section, tmp_path) -> None:
    rows = [{"text": "a b", "y": 1.7e308}, {"text": "c d", "y": -1.7e308}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "jsonl", "paths": [str(tmp_path)], "label_key": "y", "label_kind": "number"}
    with pytest.raises(DataError, match="numbers of the documents are too large to be averaged"):
        prepare(section(source, split=SHARES))
