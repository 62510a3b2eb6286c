"""`trainwright serve` as a user meets it: a process, a port, OpenAI's client, Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import openai
import pytest

TINY = Path(__file__).parents[1] / "fixtures" / "tiny_models.py"
MAIN = "import sys; from trainwright.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    module_spec = importlib.util.spec_from_file_location("tiny_models", TINY)
    tiny = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(tiny)
    return tiny.write_trained(tmp_path_factory.mktemp("models") / "tiny", tiny.decoder(), tiny.tokenizer())


@pytest.fixture
def serve(bundle, tmp_path):
    """Starts ``trainwright serve`` and gives the process; what is still running at the end is killed."""
    started = []

    def start(*arguments, **environment):
        command = [sys.executable, "-c", MAIN, "serve", "--bundle", str(bundle), *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=os.environ | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def announced(process) -> dict:
    """The JSON document that the server prints when it is ready."""
    text = ""
    while not text.endswith("}\n") or text.count("{") != text.count("}"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        text += line
    return json.loads(text)


def test_from_start_to_ctrl_c(serve):
    process = serve("--port", "0", "--json", "--model-name", "small")
    printed = announced(process)
    assert printed["schema"] == "trainwright.serve/1"
    with openai.OpenAI(base_url=f"{printed['url']}/v1", api_key="unused", max_retries=0) as client:
        assert [model.id for model in client.models.list().data] == ["small"]
        whole = client.completions.create(model="small", prompt="def add", max_tokens=8, temperature=0)
        stream = client.completions.create(model="small", prompt="def add", max_tokens=8, temperature=0, stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert errors.splitlines() == ["stopped"]


def test_the_printed_example_works(serve):
    process = serve("--port", "0")
    line, example = process.stdout.readline(), process.stdout.readline().strip()
    assert line.startswith("serving tiny at http://127.0.0.1:")
    curl, url, _, header, _, body = shlex.split(example)
    assert (curl, header) == ("curl", "Content-Type: application/json")
    request = urllib.request.Request(url, data=body.encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["object"] == "text_completion"


def test_a_port_in_use_is_one_line_and_exit_code_3(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve("--port", str(port))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert errors == (
        f"error: 127.0.0.1:{port}: the port is in use; stop the program that uses it, "
        "or choose another port with --port (0 takes a free one)\n"
    )


def test_a_key_is_asked_for_where_one_is_set(serve):
    printed = announced(serve("--port", "0", "--json", TRAINWRIGHT_API_KEY="s3cret"))
    with openai.OpenAI(base_url=f"{printed['url']}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="a valid API key is required"):
            client.models.list()
        assert client.with_options(api_key="s3cret").models.list().data
    assert "$TRAINWRIGHT_API_KEY" in printed["example"]
    assert "s3cret" not in printed["example"]


def test_a_directory_without_a_model_is_exit_code_4(serve, tmp_path):
    process = serve("--bundle", str(tmp_path / "nothing"), "--port", "0")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 4
    assert errors.startswith(f"error: {tmp_path / 'nothing'}: no model here")
    assert len(errors.splitlines()) == 1


@pytest.mark.slow
def test_a_finished_export_is_served_and_the_workspace_is_not_written(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.workspace.rglob("*")}
    command = finished.command("serve", "--port", "0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = announced(process)["url"]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
            made = client.completions.create(model="tiny", prompt="alpha beta", max_tokens=4)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert made.usage.completion_tokens > 0
    assert {path: path.stat().st_mtime_ns for path in finished.workspace.rglob("*")} == before
