from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys

import pytest
import torch

from trainwright import __version__
from trainwright.cli.main import COMMANDS, help_text, main, parser_of
from trainwright.core.errors import DataError, Interrupted, RecipeError, RecipeErrors, Terminated


def raising(error):
    def run(args):
        raise error

    return run


def test_help_lists_every_command_in_order(capsys):
    for arguments in ([], ["-h"], ["--help"]):
        assert main(arguments) == 0
        printed = capsys.readouterr().out
        assert printed.strip() == help_text()
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS]
    assert listed == list(COMMANDS)
    assert listed[:6] == ["init", "recipes", "run", "doctor", "plan", "recommend"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_help_wraps_on_a_narrow_terminal(width):
    lines = help_text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(help_text().split())
    assert " ".join(" ".join(lines).split()) == words


def test_help_says_what_exit_codes_mean():
    for code in ("0 ok", "2 usage", "130 interrupted", "141 the reader", "143 terminated"):
        assert code in help_text()


@pytest.mark.parametrize("group", ["hardware", "catalog", "config"])
def test_a_group_alone_prints_what_it_can_do(group, capsys):
    assert main([group, "--help"]) == 0
    asked = capsys.readouterr()
    assert main([group]) == 0
    assert capsys.readouterr() == asked
    assert set(parser_of(group)[1].subcommands) <= set(asked.out.split())


def test_version_is_one_line(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trainwright {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["trian"]], ids=str)
def test_little_is_imported_before_a_command_is_known(arguments):
    code = (
        "import sys; from trainwright.cli.main import main; main(sys.argv[1:]);"
        "heavy = {'pydantic', 'yaml', 'rich', 'numpy', 'torch', 'asyncio', 'importlib.metadata'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_exit_code_is_the_command_s(fake):
    fake(lambda args: 7)
    assert main(["fake"]) == 7


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian"], "error: unknown command (seen 'trian', expected trainwright COMMAND ...); did you mean 'train'?"),
        (["--jsn"], "error: an option before the command (seen '--jsn', expected trainwright COMMAND ...); see: "),
        (["fake", "--jsn"], "error: trainwright fake: unknown argument (seen '--jsn'); did you mean '--json'?"),
        (["fake", "x"], "error: trainwright fake: unknown argument (seen 'x'); see: trainwright fake --help"),
        (["config", "-q"], "error: trainwright config: unrecognized arguments: -q; see: trainwright config --help"),
        (["config", "shw"], "error: trainwright config: argument SUBCOMMAND: invalid choice: 'shw'"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line_and_exit_code_2(fake, capsys, arguments, line):
    fake(lambda args: 0)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(line)
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_errors_are_lines_without_a_traceback(fake, capsys):
    fake(raising(RecipeErrors([RecipeError("one"), RecipeError("two")])))
    assert main(["fake"]) == 2
    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_debug_shows_the_traceback(fake, capsys, monkeypatch):
    fake(raising(DataError("torn")))
    assert main(["fake", "--debug"]) == 4
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("TRAINWRIGHT_DEBUG", "1")
    assert main(["fake"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_with_json_an_error_is_a_document_on_stdout(fake, capsys):
    fake(raising(DataError("torn", where="shard-0", seen=3, expected="4", fix="prepare it again")))
    assert main(["fake", "--json"]) == 4
    printed = capsys.readouterr()
    assert not printed.err
    assert json.loads(printed.out) == {
        "schema": "trainwright.error/1",
        "exit_code": 4,
        "errors": [
            {
                "code": "data_error",
                "what": "torn",
                "where": "shard-0",
                "seen": "3",
                "expected": "4",
                "fix": "prepare it again",
            }
        ],
    }


def test_a_termination_is_143(fake, capsys):
    fake(raising(Terminated("stopped at step 7")))
    assert main(["fake"]) == 143
    assert capsys.readouterr().err == "error: stopped at step 7\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("stopped at step 7")], ids=repr)
def test_an_interruption_is_130(fake, capsys, error):
    fake(raising(error))
    assert main(["fake"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_control_c_says_how_to_go_on(fake, capsys):
    fake(raising(KeyboardInterrupt()))
    main(["fake"])
    assert capsys.readouterr().err == "error: interrupted; run the same command to continue\n"


def test_a_defect_is_called_one(fake, capsys):
    fake(raising(ZeroDivisionError("division by zero")))
    assert main(["fake"]) == 70
    assert capsys.readouterr().err == (
        "error: a defect in trainwright: ZeroDivisionError: division by zero; "
        "run it again with --debug for the traceback, and please report it\n"
    )
    assert main(["fake", "--json"]) == 70
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["errors"][0]["code"]) == (70, "defect")


def test_an_exit_in_the_middle_of_a_command_is_no_success(fake, capsys):
    fake(raising(SystemExit(0)))
    assert main(["fake"]) == 70
    assert capsys.readouterr().err.startswith("error: a defect in trainwright: SystemExit: 0; ")


def of_torch(*shape):
    """Returns what torch raises where so much memory is asked for."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(shape, dtype=torch.float32)
    return caught.value


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "part.tmp"), "part.tmp: the system refuses (seen No space"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "x: the system refuses (seen Permission denied)"),
        (MemoryError(), "the memory is full"),
        (of_torch(10**15), "the memory is full (seen tried to allocate 4000000000000000 bytes)"),
        (of_torch(10**15, 10**15), "the memory is full (seen storage size calculation overflowed)"),
    ],
)
def test_what_the_machine_refuses_is_no_defect(fake, capsys, error, line):
    fake(raising(error))
    assert main(["fake"]) == 3
    assert capsys.readouterr().err.startswith(f"error: {line}")


def test_a_missing_file_that_nobody_named_is_a_defect(fake, capsys):
    fake(raising(FileNotFoundError(errno.ENOENT, "No such file or directory", "ours")))
    assert main(["fake"]) == 70
    assert "a defect in trainwright: FileNotFoundError" in capsys.readouterr().err


def test_a_working_directory_that_is_gone_is_one_line(fake, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    fake(lambda args: 0)
    assert main(["fake"]) == 3
    assert capsys.readouterr().err == "error: the working directory is gone; change to one that exists\n"
    assert main(["--version"]) == 0


def test_a_name_longer_than_the_system_takes_is_one_line(capsys):
    assert main(["plan", "--model", "a" * 10_000, "--on", "8xh100-sxm"]) == 3
    assert "File name too long" in capsys.readouterr().err


def test_a_process_that_answers_and_ends_looks_for_no_garbage_and_starts_no_threads(tmp_path):
    program = (
        "import gc, os, sys; sys.argv = ['trainwright', {command!r}, '--help']; from trainwright.cli.main import main; "
        "main(); sys.exit(f'{{gc.isenabled()}} {{os.environ.get(\"OPENBLAS_NUM_THREADS\")}}')"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for command, expected in (("plan", "False 1"), ("train", "True None")):
        arguments = [sys.executable, "-c", program.format(command=command)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)
        assert done.stderr.strip() == expected


def test_a_caller_keeps_its_garbage_collection(capsys):
    assert main(["plan", "--help"]) == 0
    assert gc.isenabled()


def test_an_option_of_another_command_names_that_command(capsys):
    assert main(["plan", "--model", "llama3-8b", "--on", "8xh100", "--deadline", "3d"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("(seen '--deadline'); trainwright recommend has it")
