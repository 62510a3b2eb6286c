from __future__ import annotations

import json

import pytest

from trainwright.artifact.events import Events
from trainwright.cli.main import main
from trainwright.cli.recipe.events import HOW_TO_SEE, TOOLS
from trainwright.render.event_files import FORMS


@pytest.fixture
def workspace(tmp_path):
    """A workspace with one training."""
    with Events(tmp_path / "events.jsonl", run="r") as events:
        events.emit("stage", "train", 1.0, text="done")
    with Events(tmp_path / "train-abc" / "events.jsonl", run="r") as events:
        events.metric("train/loss", 2.0, step=1)
    return tmp_path


@pytest.mark.parametrize("name", ["", "train-abc", "train-abc/events.jsonl"])
def test_a_training_is_found_by_workspace_folder_and_file(name, workspace, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert main(["events", "export", str(workspace / name), "--to", "tensorboard", "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.events.export/1"
    assert (document["points"], document["folder"]) == (1, str(out / "train-abc"))
    assert document["see"] == f"tensorboard --logdir {out / 'train-abc'}"


def test_several_trainings_and_none_are_refused(workspace, capsys) -> None:
    (workspace / "train-def").mkdir()
    (workspace / "train-def" / "events.jsonl").write_text("")
    assert main(["events", "export", str(workspace), "--to", "tensorboard"]) == 4
    assert "several trainings" in capsys.readouterr().err
    assert main(["events", "export", str(workspace / "nowhere"), "--to", "tensorboard"]) == 4
    assert "no events here" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["/dev/full", "/proc/nope"])
def test_a_place_where_no_folder_can_be_is_one_line(workspace, capsys, out) -> None:
    assert main(["events", "export", str(workspace), "--to", "tensorboard", "--out", out]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {out}") and line.endswith("choose another place with `--out`")


def test_every_tool_has_its_form_and_says_how_to_see_it() -> None:
    assert set(TOOLS) == set(FORMS) == set(HOW_TO_SEE)
