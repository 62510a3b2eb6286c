"""Sets of labels in records, and that every source gives the same ones."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.stages.data.sources.labels import names_in, set_in, set_of
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
