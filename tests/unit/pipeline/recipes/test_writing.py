"""Writing: the loader's own check before, whole or not at all, nothing overwritten unasked."""

from __future__ import annotations

import pytest

from trainwright.core.errors import MachineError, RecipeError, RecipeErrors
from trainwright.pipeline.recipes import writing
from trainwright.pipeline.recipes.composing import Composed
from trainwright.pipeline.recipes.writing import checked, head_of, text_of, write

TREE = {
    "name": "mine",
    "model": {"family": "llama", "layers": 1, "width": 16, "heads": 2, "context_tokens": 32},
    "data": {"sources": [{"kind": "python-stdlib"}]},
    "train": {"sequence_tokens": 32, "batch_tokens": 64},
}


def test_each_line_has_its_word_in_one_column() -> None:
    text = text_of(Composed(tree=TREE, comments={"name": "who", "model.layers": "how deep"}), ("what",))
    assert text.splitlines()[:4] == ["# what", "name: mine" + " " * 17 + "# who", "model:", "  family: llama"]
    assert "  layers: 1" + " " * 16 + "# how deep" in text.splitlines()


def test_the_head_says_what_to_type() -> None:
    assert head_of("do it", "trainwright init", {"a": "one", "bcd": "two"}) == (
        "Do it. Written by: trainwright init",
        "  a     # one",
        "  bcd   # two",
    )


def test_a_draft_is_read_as_the_recipe_that_it_is_to_be(tmp_path) -> None:
    text = text_of(Composed(tree=TREE, comments={}), ())
    assert checked(text, tmp_path / "mine.yaml").recipe.name == "mine"
    with pytest.raises(RecipeErrors, match=r"^mine\.yaml:7:3: .*") as caught:
        checked(text.replace("context_tokens: 32", "contxt: 32"), tmp_path / "mine.yaml")
    assert "context_tokens" in str(caught.value)


def test_what_this_machine_lacks_refuses_nothing(tmp_path) -> None:
    tree = TREE | {"model": {**TREE["model"], "init_from": str(tmp_path / "later")}}
    (lacking,) = checked(text_of(Composed(tree=tree, comments={}), ()), tmp_path / "mine.yaml").lacking
    assert "no such directory" in str(lacking)


def test_nothing_is_overwritten_unasked(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    write("one\n", path, force=False)
    with pytest.raises(RecipeError, match="already"):
        write("two\n", path, force=False)
    assert path.read_text() == "one\n"
    write("two\n", path, force=True)
    assert path.read_text() == "two\n" and [each.name for each in tmp_path.iterdir()] == ["mine.yaml"]


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch) -> None:
    def full(path, *chunks):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(writing, "write_atomically", full)
    with pytest.raises(MachineError, match="cannot write the recipe .*No space left"):
        write("one\n", tmp_path / "mine.yaml", force=False)
    assert not list(tmp_path.iterdir())


def test_folders_are_refused(tmp_path) -> None:
    with pytest.raises(RecipeError, match="this is a folder"):
        write("one\n", tmp_path, force=True)
    with pytest.raises(MachineError, match="cannot write the recipe"):
        write("one\n", tmp_path / "none" / "mine.yaml", force=False)
