"""What a dataset is made of is what its address says, whatever happens to the files meanwhile."""

from __future__ import annotations

import pytest

from trainwright.core.errors import DataError
from trainwright.stages.data import preparation, stage
from trainwright.stages.data.corpus.digests import CACHE, corpus_digest
from trainwright.stages.data.tokens.tokenizer import tokenizer_json


def text_corpus(folder):
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02d}.txt").write_text(f"document {number} with some words of text\n" * 30)
    return {"kind": "files", "paths": [str(folder)]}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("change", ["rewritten", "longer", "replaced", "gone"])
def test_a_corpus_file_that_changes_before_it_is_read_is_named(
    prepare, section, tmp_path, monkeypatch, workers, change
):
    source = text_corpus(tmp_path / "corpus")
    path, real = tmp_path / "corpus" / "33.txt", preparation.read_corpus
    data = path.read_bytes()

    def then_change(*args, **kwargs):
        corpus = real(*args, **kwargs)
        if change == "rewritten":
            path.write_bytes(data.replace(b"document", b"DOCUMENT"))
        elif change == "longer":
            path.write_bytes(data + b"more")
        elif change == "replaced":
            (tmp_path / "other").write_bytes(data[::-1])
            (tmp_path / "other").replace(path)
        else:
            path.unlink()
        return corpus

    monkeypatch.setattr(preparation, "read_corpus", then_change)
    rules = section(source, exec={"workers": workers, "part_documents": 5})
    with pytest.raises(DataError, match=r"33.txt: this file changed while the corpus was read .*run the same command"):
        prepare(rules)
    monkeypatch.undo()
    path.write_bytes(data)
    assert prepare(rules).files == prepare(rules, tmp_path / "undisturbed").files


def test_a_corpus_other_than_the_one_in_the_address_is_refused(prepare, section, tmp_path):
    rules = section(text_corpus(tmp_path / "corpus"))
    address = {"corpus": corpus_digest(rules, cache=tmp_path / CACHE)}
    undisturbed = prepare(rules, digests=address).files
    (tmp_path / "corpus" / "new.txt").write_text("came later")
    with pytest.raises(DataError, match=r"files of the corpus came, went or .*; run the same command again"):
        prepare(rules, tmp_path / "more", digests=address)
    (tmp_path / "corpus" / "new.txt").unlink()
    before = (tmp_path / "corpus" / "07.txt").read_bytes()
    (tmp_path / "corpus" / "07.txt").write_bytes(before.upper())
    with pytest.raises(DataError, match=r"07.txt: this file changed while the corpus was read .*another digest"):
        prepare(rules, tmp_path / "other", digests=address)
    (tmp_path / "corpus" / "07.txt").write_bytes(before)
    assert prepare(rules, tmp_path / "again", digests=address).files == undisturbed


def test_a_tokenizer_that_changes_is_named(prepare, section, corpus, tmp_path, monkeypatch):
    path, real = tmp_path / "mine.json", stage.tokenizer_digest
    path.write_text(tokenizer_json([(b"a", b"b")], end_of_text="</s>"), encoding="utf-8")

    def then_change(section):
        digest = real(section)
        path.write_text(tokenizer_json([(b"a", b"c")], end_of_text="</s>"), encoding="utf-8")
        return digest

    monkeypatch.setattr(stage, "tokenizer_digest", then_change)
    rules = {"kind": "pretrained", "path": str(path), "end_of_text": "</s>"}
    with pytest.raises(DataError, match=r"mine.json: this file changed"):
        prepare(section({"kind": "jsonl", "paths": [str(corpus)]}, tokenizer=rules))
