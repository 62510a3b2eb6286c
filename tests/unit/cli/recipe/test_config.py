from __future__ import annotations

import json
import os

import pytest

from trainwright.cli.main import main


def test_show_prints_a_recipe_that_means_the_same(recipe, capsys, tmp_path):
    assert main(["config", "show", recipe, "train.clip_norm=null", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["config", "show", recipe, "train.clip_norm=null"]) == 0
    (tmp_path / "again.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["config", "show", "again.yaml", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert first["schema"] == "trainwright.config.show/1"
    assert again["recipe"] == first["recipe"]
    assert first["origins"]["train.clip_norm"] == "override train.clip_norm"
    assert first["origins"]["train.optimizer.lr"] == "tiny.yaml:10:5"


def test_show_origin_says_where_each_value_comes_from(recipe, capsys):
    assert main(["config", "show", recipe, "--origin", "seed=7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["name:", "tiny", "#", "tiny.yaml:1:1"],
        ["seed:", "7", "#", "override", "seed"],
    ]
    assert "    lr: 0.001" in "\n".join(lines)


def test_explain_one_key_and_all_sections(capsys):
    assert main(["config", "explain", "train.optimizer.lr"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["  type: number > 0", "  default: 0.0003"]
    assert main(["config", "explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "train" in [key["key"] for key in document["keys"]]


PLUG_IN = """
from pydantic import Field
from trainwright.core.extension import with_keys
from trainwright.spec.sections.updates.optimizer import OptimizerSection

class HeavySection(OptimizerSection):
    inertia: float = Field(0.9, ge=0, lt=1, description="share of the former step")

@with_keys(HeavySection)
def heavy(network, section):
    return []
"""


def test_explain_a_key_of_a_plug_in_that_a_recipe_names(recipe, capsys, tmp_path, monkeypatch):
    (tmp_path / "explained_rules.py").write_text(PLUG_IN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    key, named = "train.optimizer.inertia", "train.optimizer={name: 'explained_rules:heavy'}"
    assert main(["config", "explain", key, recipe, named]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["  share of the former step", "  type: number >= 0 and < 1"]
    assert lines[-1] == "  only for: explained_rules:heavy"
    assert main(["config", "explain", key]) == 2
    assert "for a plug-in's keys add the recipe that names it" in capsys.readouterr().err


def test_explain_an_unknown_key(capsys):
    assert main(["config", "explain", "train.lr"]) == 2
    assert "did you mean 'train.optimizer.lr'?" in capsys.readouterr().err


def test_schema_is_a_schema(capsys):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Trainwright recipe"
    assert main(["config", "schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["json_schema"]["title"] == "Trainwright recipe"


@pytest.mark.parametrize("command", ["validate", "show"])
def test_everything_wrong_is_said(recipe, capsys, command):
    assert main(["config", command, recipe, "train.lr=1", "model.width=wide"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: override model.width: wrong value (seen 'wide', expected a whole number)",
        "error: override train.lr: unknown key; did you mean 'train.optimizer.lr'?",
    ]


def test_validate_says_yes(recipe, capsys):
    assert main(["config", "validate", recipe]) == 0
    assert capsys.readouterr().out == "tiny.yaml: valid\n"


def test_validate_finds_what_a_run_would_find_late(recipe, capsys):
    wrong = ["data.sources=[{kind: files, paths: [/nowhere]}]", "train.duration=0 steps", "plan.rent_on=[h1000]"]
    assert main(["config", "validate", recipe, *wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: override ") for line in lines)


def test_validate_returns_on_files_without_an_end(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with (tmp_path / "large.yaml").open("wb") as stream:
        stream.truncate(10 << 30)
    for path, expected in (
        (tmp_path / "pipe.yaml", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path / "large.yaml", "too large for a recipe (seen 10 GiB, expected 16 MiB at most)"),
    ):
        assert main(["config", "validate", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert expected in line and str(path) in line
