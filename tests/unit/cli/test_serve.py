from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.cli import main as cli
from trainwright.cli import serve
from trainwright.pipeline import runner
from trainwright.testing.artifacts import make_artifact


@pytest.fixture
def opened(monkeypatch):
    """Arguments of the server that the command opened; it is stopped by Ctrl-C at once."""
    found = {}

    def interrupted():
        raise KeyboardInterrupt

    def open_server(directory, **arguments):
        found.update(arguments, directory=directory)
        return SimpleNamespace(url=f"http://{arguments['host']}:{arguments['port']}", run=interrupted)

    monkeypatch.setattr(serve, "load", lambda reference, kind: open_server)
    return found


def test_a_bundle_is_served_until_ctrl_c(opened, tmp_path, capsys):
    assert cli.main(["serve", "--bundle", str(tmp_path), "--port", "0"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"serving {tmp_path.name} at http://127.0.0.1:0/v1 (Ctrl-C stops)\n  curl http")
    assert said.err == "stopped\n"
    assert opened == {
        "directory": tmp_path, "model_name": tmp_path.name, "host": "127.0.0.1", "port": 0,
        "max_concurrent": 8, "max_waiting": 64, "api_key": None,
    }  # fmt: skip


def test_a_recipe_is_exported_first(opened, recipe, monkeypatch, tmp_path):
    ran = {}

    def run(recipe, *, root, upto, listeners):
        ran.update(name=recipe.name, root=root, upto=upto)
        return {"export": SimpleNamespace(path=Path("exported"), verify=lambda: ran.update(verified=True))}

    monkeypatch.setattr(runner, "run", run)
    command = ["serve", recipe, "serve.port=9001", "serve.max_concurrent=2", "--workspace", "w", "--quiet", "--json"]
    assert cli.main(command) == 0
    assert ran == {"name": "tiny", "root": Path("w"), "upto": "export", "verified": True}
    assert (opened["directory"], opened["model_name"]) == (Path("exported/huggingface"), "tiny")
    assert (opened["port"], opened["max_concurrent"]) == (9001, 2)


def test_flags_win_over_the_recipe(opened, recipe, monkeypatch):
    exported = SimpleNamespace(path=Path("exported"), verify=lambda: None)
    monkeypatch.setattr(runner, "run", lambda *a, **k: {"export": exported})
    assert cli.main(["serve", recipe, "serve.model_name=a", "--model-name", "b", "--port", "1", "--quiet"]) == 0
    assert (opened["model_name"], opened["port"]) == ("b", 1)


def test_an_open_address_without_a_key_is_warned_about(opened, tmp_path, capsys, monkeypatch):
    command = ["serve", "--bundle", str(tmp_path), "--host"]
    assert cli.main([*command, "0.0.0.0"]) == 0  # noqa: S104  # nothing listens: the server is a stand-in
    assert "0.0.0.0 is reachable from other machines and no key is asked for" in capsys.readouterr().err
    for host in ("localhost", "::1", "127.0.0.2"):
        cli.main([*command, host])
        assert "reachable" not in capsys.readouterr().err
    monkeypatch.setenv("TRAINWRIGHT_API_KEY", "s3cret")
    cli.main([*command, "0.0.0.0", "--json"])  # noqa: S104
    said = capsys.readouterr()
    assert "reachable" not in said.err
    assert opened["api_key"] == "s3cret"
    assert "Bearer $TRAINWRIGHT_API_KEY" in json.loads(said.out)["example"]


def test_a_damaged_export_is_named_and_not_served(opened, recipe, monkeypatch, tmp_path, capsys):
    exported = make_artifact(tmp_path, "export", {"model.safetensors": b"weights"})
    (exported.path / "model.safetensors").write_bytes(b"damaged")
    monkeypatch.setattr(runner, "run", lambda *a, **k: {"export": exported})
    assert cli.main(["serve", recipe, "--quiet"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "model.safetensors: damaged file: its sha256 does not match the manifest" in line
    assert not opened


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny.yaml", "--bundle", "x"], "a recipe and --bundle exclude each other"),
        (["--bundle", "x", "--port", "70000"], "--port: no such port (seen 70000, expected 0 to 65535)"),
        ([], "no recipe"),
    ],
)
def test_usage(opened, recipe, capsys, arguments, message):
    assert cli.main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not opened
