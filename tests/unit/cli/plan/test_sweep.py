import json

import pytest

from trainwright.cli import main as cli

ASKED = ["plan", "--model", "llama3-8b", "--tokens", "100B", "--on", "2x8xh100-sxm"]


def test_scaling_is_two_tables_and_a_sentence(capsys):
    assert cli.main([*ASKED, "--sweep", "nodes=1,2,4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("strong scaling")
    assert "weak scaling" in out and "efficiency" in out
    assert "every further device brings" in out or "do not pay" in out


def test_topologies_are_one_table(capsys):
    assert cli.main([*ASKED, "--sweep", "scale_out=25Gb/s,400Gb/s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "exposed" in lines[0] and "layout" in lines[0]


def test_a_value_that_cannot_be_planned_has_its_reason_below_the_table(capsys):
    assert cli.main([*ASKED, "--sweep", "tp=3,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cannot run" in lines[1]
    assert lines[3].startswith("tp 3: ") and "cannot be divided over tp=3" in lines[3]


def test_json_has_every_point(capsys):
    assert cli.main([*ASKED, "--sweep", "micro_batch=1,2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["sweep"]
    assert [point["value"] for point in document["points"]] == ["1", "2"]
    assert all(point["step_s"] > 0 for point in document["points"])


@pytest.mark.parametrize("axis", ["nodes=1,2", "scale_out=25Gb/s,400Gb/s"])
def test_sweeps_are_drawn(axis, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main([*ASKED, "--sweep", axis, "--draw", str(tmp_path / "s.png")]) == 0
    assert (tmp_path / "s.png").stat().st_size


def test_what_varies_cannot_be_fixed_too(capsys):
    asked = ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--sweep", "tp=1,2"]
    assert cli.main([*asked, "--layout", "tp=4,pp=1"]) == 2
    assert "--sweep tp: what varies cannot be fixed too" in capsys.readouterr().err
    assert cli.main([*asked, "--layout", "pp=1"]) == 0
