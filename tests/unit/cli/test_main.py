from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainwright import __version__
from trainwright.cli.main import COMMANDS, help_text, main
from trainwright.core.errors import DataError, Interrupted, RecipeError, RecipeErrors


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
    assert listed[:5] == ["run", "doctor", "plan", "recommend", "data"]


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
        (["config"], "error: trainwright config: the following arguments are required: SUBCOMMAND"),
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
                "code": "data_error", "what": "torn", "where": "shard-0", "seen": "3",
                "expected": "4", "fix": "prepare it again",
            }
        ],
    }  # fmt: skip


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


def test_a_reader_that_goes_away_is_no_failure():
    code = "import sys; from trainwright.cli.main import main; sys.exit(main(['--help']))"
    command = f'{sys.executable} -c "{code}" | true; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", f"sleep 0; {command}"], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in {"141", "0"}
    assert not done.stderr
