from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainwright.spec.recipe import Recipe
from trainwright.stages.data.check import problems, recipe_problems
from trainwright.testing.artifacts import train_tokenizer


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def lines(section):
    return [str(problem) for problem in problems(section)]


def test_a_right_section_has_none(section, folder):
    source = {"kind": "files", "paths": [str(folder / "a.txt"), str(folder), str(folder / "*.txt"), "memory://nowhere"]}
    assert lines(section(source, {"kind": "python-stdlib"}, clean={"filters": ["long-lines"]})) == []


def test_a_tokenizer_without_the_token_between_documents_is_named(section, tmp_path):
    path = tmp_path / "tokenizer.json"
    train_tokenizer(["some words of text"], vocabulary=270).save(str(path))
    asked = {"kind": "pretrained", "path": str(path)}
    assert lines(section({"kind": "python-stdlib"}, tokenizer=asked)) == []
    (line,) = lines(section({"kind": "python-stdlib"}, tokenizer=asked | {"end_of_text": "</s>"}))
    assert line.startswith("data.tokenizer.end_of_text: this tokenizer has no token '</s>' (seen <|endoftext|>)")


def test_every_problem_is_found_at_once_and_named_by_its_key(section, folder):
    paths = [str(folder / name) for name in ("a.txt", "nowhere", "*.md", "empty", "pipe")] + ["~no-such-user-at-all/x"]
    rules = section(
        {"kind": "files", "paths": paths},
        {"kind": "jsonl", "paths": [str(folder)]},
        tokenizer={"kind": "pretrained", "path": str(folder / "none.json")},
    )
    found = problems(rules)
    assert [(str(problem.where), problem.what) for problem in found] == [
        ("data.sources.0.paths.1", "no such file or directory"),
        ("data.sources.0.paths.2", "no file matches"),
        ("data.sources.0.paths.3", "no file matches"),
        ("data.sources.0.paths.4", "a named pipe"),
        ("data.sources.0.paths.5", "this path names the home of an unknown user"),
        ("data.sources.1.paths.0", "no file matches"),
        ("data.tokenizer.path", "no tokenizer here"),
    ]
    assert [problem.exit_code for problem in found] == [4, 4, 4, 4, 2, 4, 4]
    assert all("\n" not in str(problem) for problem in found)


def test_a_corpus_without_a_byte_is_named_with_its_first_file(section, tmp_path):
    (tmp_path / "a.txt").touch()
    (tmp_path / "lost.txt").symlink_to(tmp_path / "gone.txt")
    source = {"kind": "files", "paths": [str(tmp_path)]}
    (line,) = lines(section(source))
    assert line.startswith("data.sources: the corpus is empty (seen ") and line.endswith(
        " and 1 more, expected some text)"
    )
    assert lines(section(source, {"kind": "files", "paths": ["memory://nowhere"]})) == []
    (tmp_path / "b.txt").write_text("text")
    assert lines(section(source)) == []


def test_strict_names_a_file_that_cannot_be_read_and_asks_no_network(section, folder):
    (folder / "pipe").unlink()
    (folder / "lost.txt").symlink_to(folder / "gone.txt")
    sources = {"kind": "files", "paths": ["memory://nowhere"]}, {"kind": "files", "paths": [str(folder)]}
    assert lines(section(*sources)) == []
    (line,) = lines(section(*sources, strict=True))
    assert line.startswith(f"data.strict: cannot read this file: dangling link (seen {folder}/lost.txt)")
    (folder / "lost.txt").unlink()
    assert lines(section(*sources, strict=True)) == []


def test_strict_names_the_first_record_without_text_before_anything_is_read(section, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "one"}\n{"text": null}\n{"text": "three"}\n', encoding="utf-8")
    source = {"kind": "jsonl", "paths": [str(path)]}
    assert lines(section(source)) == []
    (line,) = lines(section(source, strict=True))
    assert line == (
        f"data.strict: broken record: 'text' is not a string (seen {path}:2); "
        "mend it, or set data.strict: false to count and skip such records"
    )
    path.write_text('{"text": "one"}\n', encoding="utf-8")
    assert lines(section(source, strict=True)) == []


def test_strict_counts_null_rows_by_the_footer_of_parquet(section, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, texts = tmp_path / "rows.parquet", ["text"] * 5000 + [None] * 2
    parquet.write_table(arrow.table({"id": range(5002), "text": texts}), path, row_group_size=1000)
    source = {"kind": "parquet", "paths": [str(path)]}
    assert lines(section(source)) == []
    (line,) = lines(section(source, strict=True))
    assert line.startswith(f"data.strict: broken record: null text (seen {path}, 2 of 5,002 rows); ")
    # Nulls in another column are none of ours, and a file without statistics tells nothing.
    parquet.write_table(arrow.table({"id": [None, 1], "text": ["a", "b"]}), path)
    assert lines(section(source, strict=True)) == []
    parquet.write_table(arrow.table({"text": texts}), path, write_statistics=False)
    assert lines(section(source, strict=True)) == []


def test_an_empty_path_is_not_the_current_directory(section, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (line,) = lines(section({"kind": "files", "paths": [".", ""]}))
    assert line == "data.sources.0.paths.1: an empty path (seen '', expected a file, directory, glob or URL)"


def test_lengths_that_no_document_has_are_refused_by_their_key(section):
    source = {"kind": "python-stdlib"}
    for clean in ({"min_characters": 5, "max_characters": 5}, {"min_characters": 6}, {"max_characters": 1}):
        assert lines(section(source, clean=clean)) == []
    (line,) = lines(section(source, clean={"min_characters": 6, "max_characters": 5}))
    assert line == (
        "data.clean.max_characters: no document would be kept (seen 5, expected 6 (data.clean.min_characters) or more)"
    )


@pytest.mark.parametrize(
    ("package", "key"),
    [("pyarrow", "data.sources.0.kind"), ("fsspec", "data.sources.1.paths.0"), ("tokenizers", "data.tokenizer")],
)
def test_a_package_that_is_not_installed_is_named(section, folder, monkeypatch, package, key):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["a document"]}), folder / "a.parquet")
    rules = section({"kind": "parquet", "paths": [str(folder)]}, {"kind": "files", "paths": ["memory://bucket"]})
    monkeypatch.setitem(sys.modules, package, None)
    (line,) = lines(rules)
    assert line.startswith(f"{key}: ")
    assert line.endswith(f"needs the package {package!r}, which is not installed; run: pip install 'trainwright[data]'")


def test_a_protocol_that_nobody_knows_is_refused_without_the_network(section):
    (line,) = lines(section({"kind": "files", "paths": ["memory://a", "foo://b/c"]}))
    assert line.startswith("data.sources.0.paths.1: cannot open this URL") and "foo://b/c" in line
    (line,) = lines(section({"kind": "files", "paths": ["simplecache::foo://b/c"]}))
    assert line.startswith("data.sources.0.paths.0: cannot open this URL")


def test_nothing_heavy_is_imported(folder):
    code = (
        "import sys; from trainwright.stages.data.check import problems\n"
        "from trainwright.spec.sections.data import DataSection\n"
        f"sources = [{{'kind': kind, 'paths': [{str(folder)!r}]}} for kind in ('files', 'parquet')]\n"
        "problems(DataSection.model_validate({'sources': sources}))\n"
        "print([m for m in ('numpy', 'torch', 'pyarrow', 'fsspec', 'tokenizers', 'gigatoken') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_where_the_base_is_missing_its_template_is_not_asked_for(tmp_path):
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 3)
    model = {"layers": 1, "width": 16, "heads": 2, "init_from": str(tmp_path / "base")}
    data = {"sources": [{"kind": "chats", "paths": [str(chats)]}]}
    recipe = Recipe.model_validate({"name": "chat", "model": model, "data": data, "task": {"name": "chat"}})
    assert recipe_problems(recipe, None) == (), "the training names the base"
    (tmp_path / "base").mkdir()
    (problem,) = recipe_problems(recipe, None)
    assert problem.where == "data.chat.template", "a base that is there may lack one"


def test_a_base_of_a_hub_that_is_there_is_asked_for_its_template(tmp_path, monkeypatch):
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 3)
    (base := tmp_path / "cached").mkdir()
    monkeypatch.setattr("trainwright.stages.data.check.base_folder", lambda _text, *, weights: base)
    model = {"layers": 1, "width": 16, "heads": 2, "init_from": "hf://some/model"}
    data = {"sources": [{"kind": "chats", "paths": [str(chats)]}]}
    recipe = Recipe.model_validate({"name": "chat", "model": model, "data": data, "task": {"name": "chat"}})
    assert [problem.where for problem in recipe_problems(recipe, None)] == ["data.chat.template"]
    unknown = recipe.model_copy(update={"model": recipe.model.model_copy(update={"init_from": "~no-such-user/base"})})
    monkeypatch.undo()
    assert recipe_problems(unknown, None) == (), "said under its own key"
