from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.core.config.load import load
from trainwright.core.errors import MissingPackage, RecipeError, RecipeErrors


def test_the_last_layer_wins_and_every_value_knows_its_origin(read):
    loaded = read(
        "name: demo\ntrain:\n  sequence_tokens: 128\n  optimizer: {lr: 1e-3}\n",
        "train.optimizer.lr=3e-4",
        preset="train:\n  batch_tokens: 2k\n  sequence_tokens: 512\n  optimizer:\n    name: muon\n    lr: 5e-3\n",
        env={"TRAINWRIGHT_TRAIN__COMPILE": "true", "TRAINWRIGHT_TRAIN__OPTIMIZER__LR": "2e-4", "HOME": "/"},
        more=("train: {wait_s: 3, sequence_tokens: 64, batch_tokens: 4_096}\n",),
    )
    train = loaded.value.train
    assert (train.optimizer.lr, train.optimizer.name, train.compile) == (3e-4, "muon", True)
    assert (train.sequence_tokens, train.batch_tokens, train.wait_s) == (64, 4096, 3.0)
    origins = {key: str(origin) for key, origin in loaded.origins.items()}
    assert origins["name"] == "r.yaml:1:1"
    assert origins["train.sequence_tokens"] == "s.yaml:1:20"
    assert origins["train.optimizer.lr"] == "override train.optimizer.lr"
    assert origins["train.optimizer.name"] == "preset quick:5:5"
    assert origins["train.compile"] == "environment variable TRAINWRIGHT_TRAIN__COMPILE"
    assert origins["train.optimizer.betas.0"] == "default"
    assert loaded.origins.keys() == loaded.leaves.keys()
    assert loaded.leaves["extra"] == {}


def test_a_located_problem_keeps_its_template_its_values_and_its_advice(read):
    missing = MissingPackage("pyarrow", needed_for="reading Parquet files", extra="data")
    located = read("name: demo\n").located(missing.at("name"))
    assert (located.where, located.what) == ("r.yaml:1:1", f"name: {missing.what}")
    assert isinstance(located, MissingPackage)
    assert (located.template, located.fields, located.fix) == (missing.template, missing.fields, missing.fix)


def test_describe_says_value_and_origin(read):
    loaded = read("name: demo\n", "train.optimizer.lr=0.1")
    assert loaded.describe("train.optimizer.lr") == "train.optimizer.lr = 0.1  (override train.optimizer.lr)"
    assert loaded.describe("train.optimizer").count("\n") == 3
    with pytest.raises(RecipeError, match=r"did you mean 'train\.optimizer\.lr'"):
        loaded.describe("train.optimiser.lr")


def test_json_files_are_read(tmp_path, small):
    path = tmp_path / "r.json"
    path.write_text('{\n\t"name": "demo",\n\t"train": {"compile": true}\n}', encoding="utf-8")
    loaded = load(small, files=[path], environ={})
    assert loaded.value.train.compile
    assert str(loaded.origins["train.compile"]).endswith("r.json:3:12")


def test_a_byte_order_mark_is_no_character(tmp_path, small):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: demo\n")
    assert load(small, files=[path], environ={}).value.name == "demo"


def test_reserved_variables_are_no_keys(read):
    assert read("name: x", env={"TRAINWRIGHT_WORKSPACE": "elsewhere"}).value.name == "x"


def test_problems_of_all_layers_come_at_once(lines_of):
    assert lines_of(
        "name: demo\nname: again\ntrain:\n  compile: perhaps\n",
        "train.optimizer.lr=-1",
        "oops",
        "rent_on.7=x",
        "train..x=1",
        env={"TRAINWRIGHT_TRAIN__WAIT_S": "long", "TRAINWRIGHT_NAEM": "x"},
    ) == [
        "r.yaml:2:1: name: written twice (expected one value; the first is at r.yaml:1:1)",
        "not an override (seen 'oops', expected key=value)",
        "override train..x: not a key (seen 'train..x', expected words with dots between them)",
        "override rent_on.7: no such item (seen 7, expected an index up to 2, which appends)",
        "override train.optimizer.lr: out of range (seen -1, expected a number > 0)",
        "r.yaml:4:3: train.compile: wrong value (seen 'perhaps', expected true or false)",
        "environment variable TRAINWRIGHT_TRAIN__WAIT_S: train.wait_s: wrong value (seen 'long', expected a number)",
        (
            "environment variable TRAINWRIGHT_NAEM: naem: unknown key "
            "(expected one of name, sources, rent_on, train, extra); did you mean 'name'?"
        ),
    ]


def test_without_any_file_the_recipe_is_blamed(small):
    with pytest.raises(RecipeErrors) as caught:
        load(small, environ={})
    assert str(caught.value) == "recipe: name: missing (expected text of length >= 1: what it is called)"


def test_unusable_files_give_one_line_each(tmp_path, small, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there.yaml").write_text("name: x", encoding="utf-8")
    Path("folder.yaml").mkdir()
    Path("latin.yaml").write_bytes(b"# ok\nname: caf\xe9\n")
    Path("empty.yaml").write_text("# nothing\n", encoding="utf-8")
    Path("list.yaml").write_text("- a\n", encoding="utf-8")
    Path("broken.yaml").write_text("a: [", encoding="utf-8")
    Path("void.json").write_text("", encoding="utf-8")
    names = "their.yaml folder.yaml latin.yaml empty.yaml list.yaml broken.yaml void.json there.yaml/x"
    with pytest.raises(RecipeErrors) as caught:
        load(small, files=[Path(name) for name in names.split()], environ={})
    assert [str(problem).splitlines()[0] for problem in caught.value.problems] == [
        "their.yaml: no such file; did you mean 'there.yaml'?",
        "folder.yaml: a directory (expected a .yaml or .json file)",
        "latin.yaml:2: not UTF-8 text (seen byte 0xe9); save it as UTF-8",
        "empty.yaml: an empty file (expected key: value lines)",
        "list.yaml:1:1: not a mapping (seen ['a'], expected key: value lines)",
        (
            "broken.yaml:1:5: not valid YAML: while parsing a flow node: "
            "expected the node content, but found '<stream end>'"
        ),
        "void.json:1:1: not valid JSON: Expecting value",
        "there.yaml/x: cannot be read (seen Not a directory)",
    ]


def test_an_unreadable_file_says_why(tmp_path, small, monkeypatch):
    path = tmp_path / "r.yaml"
    path.write_text("name: x", encoding="utf-8")

    def refuse(self, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RecipeErrors, match=r"r\.yaml: cannot be read \(seen Permission denied\)"):
        load(small, files=[path], environ={})
