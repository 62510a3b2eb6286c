from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.cli import main as cli
from trainwright.cli.recipe import serve
from trainwright.core.errors import MachineError
from trainwright.core.extension import with_keys
from trainwright.hardware.machine import room
from trainwright.pipeline import runner
from trainwright.spec.sections.serve import EngineSection, ServeSection
from trainwright.stages.serve import check

ENGINE = "fixtures.parrot_engine:open_engine"


@pytest.fixture
def opened(monkeypatch):
    """Arguments of the server that the command opened; it is stopped by Ctrl-C at once."""
    seen = {}

    def interrupted():
        raise KeyboardInterrupt

    def open_server(directory, section, **arguments):
        seen.update(arguments, directory=directory, section=section)
        return SimpleNamespace(url=f"http://{section.host}:{section.port}", run=interrupted)

    functions = {
        "open_server": open_server,
        "listen": lambda host, port: SimpleNamespace(close=lambda: None),
        "memory_problems": lambda recipe: (),
    }
    monkeypatch.setattr(serve, "load", lambda reference, kind: functions[reference.partition(":")[2]])
    return seen


@pytest.fixture
def exported(monkeypatch):
    """A workspace where nothing is made yet, and what a run of the pipeline was asked for."""
    asked = {}

    def run(recipe, *, root, upto, listeners):
        asked.update(name=recipe.name, root=root, upto=upto)
        return {"export": SimpleNamespace(path=Path("exported"))}

    monkeypatch.setattr(runner, "find", lambda recipe, *, root, upto: {})
    monkeypatch.setattr(runner, "run", run)
    return asked


def test_a_bundle_is_served_until_ctrl_c(opened, tmp_path, capsys):
    assert cli.main(["serve", "--bundle", str(tmp_path), "--port", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"serving {tmp_path.name} at http://127.0.0.1:0/v1 (Ctrl-C stops)\n  curl http")
    assert printed.err == "stopped\n"
    assert opened == {
        "directory": tmp_path,
        "section": ServeSection(port=0),
        "model_name": tmp_path.name,
        "api_key": None,
    }


def test_a_recipe_is_exported_first(opened, recipe, exported):
    command = ["serve", recipe, "serve.port=9001", "serve.max_concurrent=2", "--workspace", "w", "--quiet", "--json"]
    assert cli.main(command) == 0
    assert exported == {"name": "tiny", "root": Path("w"), "upto": "export"}
    assert (opened["directory"], opened["model_name"]) == (Path("exported/huggingface"), "tiny")
    assert (opened["section"].port, opened["section"].max_concurrent) == (9001, 2)


def test_an_export_that_is_there_is_served_without_a_run(opened, recipe, exported, monkeypatch):
    made = {"export": SimpleNamespace(path=Path("made"))}
    monkeypatch.setattr(runner, "find", lambda recipe, *, root, upto: made)
    assert cli.main(["serve", recipe, "--quiet"]) == 0
    assert opened["directory"] == Path("made/huggingface")
    assert exported == {}


def test_a_bundle_that_no_server_reads_is_refused_before_anything_runs(opened, recipe, exported, capsys):
    formats = "export.formats=['contract.additions.exporters:Pair']"
    assert cli.main(["serve", recipe, formats, "--quiet"]) == 2
    assert "no bundle that can be served" in capsys.readouterr().err
    assert exported == opened == {}


@pytest.mark.parametrize("place", ["key", "option"])
def test_a_port_in_use_is_said_before_anything_is_made(recipe, exported, capsys, place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = [f"serve.port={port}"] if place == "key" else ["--port", str(port)]
        assert cli.main(["serve", recipe, *words, "--quiet"]) == 3
    assert f"127.0.0.1:{port}: the port is in use" in capsys.readouterr().err
    assert exported == {}


@pytest.fixture
def small_memory(monkeypatch):
    """A processor alone, with memory for two requests of the recipe in fp32 (2 layers, 256 positions, width 64)."""
    monkeypatch.setattr(check, "gpus", lambda: ())
    monkeypatch.setattr(room, "memory", lambda: (2 * (2 * 2 * 256 * 64 * 4), 0))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--max-concurrent", "3"], "--max-concurrent: "),
        (["serve.max_concurrent=3"], "override serve.max_concurrent: "),
        (["serve.max_concurrent=1", "--max-concurrent", "3"], "--max-concurrent: "),
        (["places.yaml"], "places.yaml:1:9: serve.max_concurrent: "),
    ],
)
def test_a_cache_that_memory_cannot_hold_is_said_before_anything_is_made(
    recipe, exported, small_memory, capsys, words, place
):
    Path("places.yaml").write_text("serve: {max_concurrent: 3}\n", encoding="utf-8")
    assert cli.main(["serve", recipe, *words, "--quiet"]) == 3
    line = capsys.readouterr().err
    assert line.startswith(f"error: {place}a key/value cache for 3 requests needs more memory than there is")
    assert line.endswith("; set it to 2\n")
    assert exported == {}


def test_the_cache_is_that_of_the_model_that_the_list_trains(recipe, exported, small_memory, capsys):
    listed = "stages=[{stage: train, model: {context_tokens: 512}}, {stage: export}]"
    assert cli.main(["serve", recipe, listed, "serve.max_concurrent=2", "--port", "0", "--quiet"]) == 3
    assert (
        "for 2 requests needs more memory than there is (seen 1 MiB, expected 512 KiB at most)"
        in capsys.readouterr().err
    )
    assert exported == {}


def test_fewer_places_by_option_than_by_the_recipe_are_served(opened, recipe, exported, small_memory, monkeypatch):
    stand_in = serve.load
    monkeypatch.setattr(
        serve, "load", lambda name, kind: check.memory_problems if name.endswith("y_problems") else stand_in(name, kind)
    )
    assert cli.main(["serve", recipe, "serve.max_concurrent=3", "--max-concurrent", "2", "--quiet"]) == 0
    assert opened["section"].max_concurrent == 2


@pytest.mark.parametrize("words", [["tiny.yaml", "--max-concurrent", "3"], ["--bundle", "."]])
def test_what_the_engine_refuses_is_said_of_the_option(opened, recipe, exported, monkeypatch, capsys, words):
    def open_server(directory, section, **arguments):
        raise MachineError(
            "too many", where="serve.max_concurrent", field="max_concurrent", seen=section.max_concurrent
        )

    stand_in = serve.load
    monkeypatch.setattr(
        serve, "load", lambda name, kind: open_server if name.endswith("open_server") else stand_in(name, kind)
    )
    assert cli.main(["serve", *words, "--quiet"]) == 3
    assert capsys.readouterr().err.startswith("error: --max-concurrent: too many (seen ")


def test_flags_win_over_the_recipe(opened, recipe, exported):
    keys = ["serve.model_name=a", "serve.engine=torch", 'serve.allowed_hosts=["x"]']
    flags = [
        "--model-name",
        "b",
        "--port",
        "1",
        "--engine",
        ENGINE,
        "--max-concurrent",
        "3",
        "--allow-host",
        "y",
        "--allow-host",
        "z",
    ]
    assert cli.main(["serve", recipe, *keys, "--quiet"]) == 0
    assert (opened["model_name"], opened["section"].allowed_hosts) == ("a", ("x",))
    assert cli.main(["serve", recipe, *keys, *flags, "--quiet"]) == 0
    section = opened["section"]
    assert (opened["model_name"], section.port, section.allowed_hosts) == ("b", 1, ("y", "z"))
    assert section.engine.name == ENGINE
    assert section.max_concurrent == 3


def test_an_open_address_without_a_key_is_warned_about(opened, tmp_path, capsys, monkeypatch):
    command = ["serve", "--bundle", str(tmp_path), "--host"]
    assert cli.main([*command, "0.0.0.0"]) == 0  # noqa: S104  # nothing listens: the server is a stand-in
    assert "0.0.0.0 is reachable from other machines and no key is asked for" in capsys.readouterr().err
    for host in ("localhost", "::1", "127.0.0.2"):
        cli.main([*command, host])
        assert "reachable" not in capsys.readouterr().err
    monkeypatch.setenv("TRAINWRIGHT_API_KEY", "s3cret")
    cli.main([*command, "0.0.0.0", "--json"])  # noqa: S104
    printed = capsys.readouterr()
    assert "reachable" not in printed.err
    assert opened["api_key"] == "s3cret"
    assert "Bearer $TRAINWRIGHT_API_KEY" in json.loads(printed.out)["example"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny.yaml", "--bundle", "x"], "a recipe and --bundle exclude each other"),
        (["--bundle", "x", "--port", "70000"], "--port: no such port (seen 70000, expected 0 to 65535)"),
        (
            ["--bundle", "x", "--host", "::1:80x"],
            "--host: not a host (seen '::1:80x', expected an IP address or a name",
        ),
        (["tiny.yaml", "--host", ""], "--host: not a host (seen ''"),
        (["tiny.yaml", "--host", "*"], "--host: not a host (seen '*'"),
        (["tiny.yaml", "--allow-host", "*", "--allow-host", "a:1"], "--allow-host: not a host (seen 'a:1'"),
        (["--bundle", "x", "--max-concurrent", "0"], "--max-concurrent: must be at least 1 (seen 0)"),
        (["--bundle", "x", "--engine", "tortch"], "--engine: unknown engine (seen 'tortch', expected one of torch"),
        (["tiny.yaml", "--engine", "no.such:engine"], "--engine: cannot import"),
        ([], "no recipe"),
    ],
)
def test_usage(opened, recipe, capsys, arguments, message):
    assert cli.main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not opened


class _SizedSection(EngineSection):
    size: int


@with_keys(_SizedSection)
def _sized(directory, *, places, section):
    """An engine that has to be told its size."""


def test_an_engine_named_by_an_option_has_the_defaults_of_its_keys(opened, tmp_path, monkeypatch, capsys):
    engine = "contract.additions.with_keys:forgetful"
    assert cli.main(["serve", "--bundle", str(tmp_path), "--engine", engine, "--quiet"]) == 0
    assert (opened["section"].engine.name, opened["section"].engine.memory_tokens) == (engine, 64)
    monkeypatch.setitem(sys.modules, "my_engines", SimpleNamespace(sized=_sized))
    assert cli.main(["serve", "--bundle", str(tmp_path), "--engine", "my_engines:sized"]) == 2
    line = (
        "--engine: this engine has keys without defaults (seen my_engines:sized); name it in a recipe, in serve.engine"
    )
    assert line in capsys.readouterr().err
