from __future__ import annotations

import json

import pytest

from fixtures.profiles import PROFILE
from trainwright.cli.main import main
from trainwright.cli.recipe.profile import PICTURE, steps_of
from trainwright.core.errors import RecipeError
from trainwright.core.records import to_json
from trainwright.pipeline import observing
from trainwright.planner.evidence.profile import FILE


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A finished profile in place of a look; returns what was asked for."""
    asked = []

    def look(recipe, **arguments):
        asked.append(arguments)
        (tmp_path / FILE).write_text(json.dumps(to_json(PROFILE)))
        return tmp_path

    monkeypatch.setattr(observing, "look", look)
    return asked


def test_the_table_is_printed_and_json_is_the_file(asked, recipe, tmp_path, capsys) -> None:
    assert main(["profile", recipe, "--steps", "20-21"]) == 0
    printed = capsys.readouterr()
    assert "communicate" in printed.out and "aten::mm" in printed.out and "perfetto" in printed.err
    assert asked[0]["options"] == {"first": 20, "last": 21}
    assert (tmp_path / PICTURE).read_text().startswith("<svg")
    assert main(["profile", recipe, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.profile/1"
    assert document["profile"] == json.loads(json.dumps(to_json(PROFILE)))
    assert asked[1]["options"] == {"first": 20, "last": 25}


@pytest.mark.parametrize(("text", "steps"), [("7", (7, 7)), ("1-2", (1, 2)), ("20-20", (20, 20))])
def test_a_range_of_steps(text, steps) -> None:
    assert steps_of(text) == steps


@pytest.mark.parametrize("text", ["0-3", "5-4", "x", "1-", "-3", ""])
def test_no_range_is_refused_in_one_line(text, asked, recipe, capsys) -> None:
    with pytest.raises(RecipeError, match="not a range of steps"):
        steps_of(text)
    assert main(["profile", recipe, f"--steps={text}"]) == 2
    assert "--steps" in capsys.readouterr().err and not asked
