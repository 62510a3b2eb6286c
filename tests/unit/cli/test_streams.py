"""Streams as shells and services hand them over; each case is a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.cli.streams import similar

# A finished job: a note, then a result with characters that few encodings have.
PROGRAM = r"""
import sys, time, types
from trainwright.cli import main as cli
from trainwright.cli.output import Output
from trainwright.core.errors import DataError

def run(args):
    output = Output.of(args)
    if "wait" in args.how:
        print("ready", file=sys.stderr)
        time.sleep(60)
    if "fail" in args.how:
        raise DataError("broken", seen="\u6a21\u578b \u25b8")
    for _ in range(1 + 5000 * ("long" in args.how)):
        output.note("note \u25b8")
    text = "\u25b8 12 \u00b5s \u00d7 \u6a21 \udc80"
    output.result({"text": text}, lambda: [output.line(text) for _ in range(1 + 5000 * ("long" in args.how))])
    return 0

command = types.SimpleNamespace(__doc__="x", run=run, configure=lambda parser: parser.add_argument("how", nargs="*"))
sys.modules["fake_command"] = command
cli.COMMANDS["fake"] = cli.Command("fake_command", "for tests")
sys.exit(cli.main())
"""
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@pytest.fixture
def shell(tmp_path):
    """``shell("$RUN fake > /dev/full", LC_ALL="C")`` -> the finished process; ``$RUN`` is the program."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")

    def _shell(line, **environment):
        quiet = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "RUN": f"{sys.executable} program.py"}
        return subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=quiet | environment, capture_output=True, check=False
        )

    return _shell


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"PYTHONIOENCODING": "gbk"}, "> 12 us \u00d7 \u6a21 ?"),
        ({"PYTHONIOENCODING": "latin-1"}, "> 12 \u00b5s \u00d7 ? ?"),
        ({"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "> 12 us x ? ?"),
        ({"PYTHONIOENCODING": "utf-8"}, "\u25b8 12 \u00b5s \u00d7 \u6a21 ?"),
    ],
)
def test_what_an_encoding_lacks_is_replaced(shell, environment, text):
    done = shell("$RUN fake", **environment)
    encoding = environment.get("PYTHONIOENCODING", "ascii")
    assert (done.returncode, done.stdout.decode(encoding)) == (0, f"{text}\n")
    assert b"defect" not in done.stderr


@pytest.mark.parametrize("encoding", ["gbk", "ascii", "utf-8"])
def test_json_loses_no_character(shell, encoding):
    done = shell("$RUN fake --json", PYTHONIOENCODING=encoding)
    assert json.loads(done.stdout.decode(encoding))["text"] == "\u25b8 12 \u00b5s \u00d7 \u6a21 \udc80"


def test_errors_keep_their_exit_code_in_any_encoding(shell):
    done = shell("$RUN fake fail", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (4, b"error: broken (seen ?? >)\n")


@FULL
@pytest.mark.parametrize("how", ["", "long", "--json", "--help"])
def test_a_result_that_cannot_be_written_is_exit_code_3_with_its_reason(shell, how):
    done = shell(f"$RUN fake {how} > /dev/full")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].decode() == (
        "error: stdout: the result cannot be written (seen No space left on device); "
        "what was made before is kept: run the same command with another output"
    )
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@FULL
def test_notes_that_cannot_be_written_are_dropped(shell):
    done = shell("$RUN fake long 2> /dev/full | wc -l; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout) == (0, b"5001\n")


@pytest.mark.parametrize("streams", ["2>&-", "<&-", "<&- 2>&-"])
def test_without_stdin_and_stderr_a_result_is_written(shell, streams):
    done = shell(f"$RUN fake long {streams}")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5001)
    assert b"Traceback" not in done.stderr and b"error" not in done.stderr


@pytest.mark.parametrize("streams", [">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("how", ["", "long", "--json", "--help"])
def test_a_result_for_a_closed_stdout_is_lost_like_one_for_a_full_disk(shell, streams, how):
    done = shell(f"$RUN fake {how} {streams}")
    assert done.returncode == 3
    if "2>&-" not in streams:
        assert done.stderr.splitlines()[-1].decode() == (
            "error: stdout: the result cannot be written (seen Bad file descriptor); "
            "what was made before is kept: run the same command with another output"
        )
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


def test_with_all_streams_closed_an_error_has_its_exit_code(shell):
    assert shell("$RUN fake fail <&- >&- 2>&-").returncode == 4


@pytest.mark.parametrize("stdout", [">&-", pytest.param("> /dev/full", marks=FULL)])
def test_an_error_whose_document_is_lost_is_a_line_with_its_exit_code(shell, stdout):
    done = shell(f"$RUN fake fail --json {stdout}", PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr.decode()) == (4, "error: broken (seen 模型 ▸)\n")


def test_a_file_opened_later_never_takes_the_place_of_a_closed_stream(shell, tmp_path):
    program = PROGRAM.replace("output.note(", "kept = open('kept.txt', 'w'); output.note(")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    shell("$RUN fake >&- 2>&-")
    assert (tmp_path / "kept.txt").read_text() == ""


@pytest.mark.parametrize("redirect", ["", "2>&1"])
def test_a_reader_that_goes_away_is_141(shell, redirect):
    done = shell(f"$RUN fake long {redirect} | head -1; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGHUP, 129, "the terminal closed"),
    ],
)
def test_signals_have_their_exit_codes(tmp_path, number, code, word):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "program.py", "fake", "wait"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(number)
        error = process.stderr.read()
    assert process.returncode == code
    assert error.startswith(f"error: {word}") and error.endswith("; run the same command to continue\n")


def test_only_encoding_has_similar_characters():
    with pytest.raises(UnicodeDecodeError):
        similar(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_out_when_it_is_printed(tmp_path, unbuffered):
    """Python's own streams are unbuffered under PYTHONUNBUFFERED; a buffer behind ours must not keep progress back."""
    script = tmp_path / "says.py"
    script.write_text(
        "import sys\nfrom trainwright.cli import streams\nstreams.prepare()\n"
        "print('now', file=sys.stderr)\nsys.stdin.readline()\n",
        encoding="utf-8",
    )
    pipe = subprocess.PIPE
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([sys.executable, script], stdin=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stderr.readline() == "now\n"
        process.communicate("\n")
