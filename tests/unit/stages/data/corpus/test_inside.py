"""A workspace inside a corpus: refused where a source would read what runs write there, and nowhere else."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.inside import workspace_problem


def problem(root, *paths, kind="files", **keys):
    source = {"kind": kind, "paths": [str(path) for path in paths]} | keys
    return str(workspace_problem(DataSection.model_validate({"sources": [source]}), root) or "")


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("text", encoding="utf-8")
    return folder


def test_a_folder_that_holds_the_workspace_is_named_before_there_is_one(corpus, monkeypatch):
    root = corpus / "runs" / "tiny"
    assert problem(root, corpus / "deep", corpus) == (
        "data.sources.0.paths.1: the workspace lies inside the corpus, and would be read as a part of it "
        f"(seen {root / 'events.jsonl'} in {corpus}); "
        "choose a `workspace` elsewhere, or name the folders that hold the corpus"
    )
    assert not root.exists()
    monkeypatch.chdir(corpus)
    assert "in .)" in problem(corpus.parent / "corpus" / "runs", ".")
    assert "lies inside" in problem(corpus, corpus, kind="jsonl")


def test_a_workspace_beside_the_corpus_or_out_of_its_reach_is_none(corpus):
    assert problem(corpus.parent / "runs", corpus) == ""
    assert problem(corpus.parent, corpus) == "", "the corpus lies in the workspace"
    assert problem(corpus / ".runs", corpus) == "", "hidden folders are not entered"
    assert problem(corpus / "runs", "memory://x", corpus / "gone", "") == ""


def test_a_source_that_takes_no_file_of_a_workspace_is_none_until_there_is_one(corpus):
    root = corpus / "runs"
    asked = {"include": ["*.txt"]}
    assert problem(root, corpus, **asked) == ""
    (root / "export-1").mkdir(parents=True)
    (root / "export-1" / "merges.txt").write_text("a b", encoding="utf-8")
    assert f"(seen {root / 'export-1' / 'merges.txt'} in {corpus})" in problem(root, corpus, **asked)


def test_a_pattern_that_reaches_into_the_workspace_is_named(corpus):
    root = corpus / "runs"
    assert problem(root, corpus / "**" / "*.txt") == ""
    root.mkdir()
    (root / "vocab.txt").write_text("a", encoding="utf-8")
    assert f"(seen {root / 'vocab.txt'} in {corpus}/**/*.txt)" in problem(root, corpus / "**" / "*.txt")
    assert problem(root, corpus / "deep" / "*.txt") == ""


def test_links_lead_where_they_lead(corpus, tmp_path):
    (tmp_path / "link").symlink_to(corpus)
    assert "lies inside" in problem(corpus / "runs", tmp_path / "link")
    assert "lies inside" in problem(tmp_path / "link" / "runs", corpus)
