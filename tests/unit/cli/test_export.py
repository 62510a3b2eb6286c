from __future__ import annotations

from trainwright.cli import main as cli
from trainwright.pipeline import runner


def test_runs_the_stages_up_to_the_export(recipe, monkeypatch):
    asked = {}
    monkeypatch.setattr(runner, "run", lambda recipe, **arguments: asked.update(arguments) or {})
    assert cli.main(["export", recipe, "--quiet"]) == 0
    assert asked["upto"] == "export"
