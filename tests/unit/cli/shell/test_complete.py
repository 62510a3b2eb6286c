"""The scripts are run by the shells themselves, where those are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from trainwright.cli.shell.complete import RECIPE_INPUTS, bash, fish, recipe_words, zsh
from trainwright.cli.shell.surface import Flag, Surface

WORDS = ["train.lr=", "train.compile=", "train.compile=true", "train.compile=false", "name="]


def option(*flags, metavar=None, choices=()):
    return Flag(flags=flags, help="it's help", metavar=metavar, choices=choices)


def surface(*words, positionals=(), subcommands=()):
    return Surface(
        words=words,
        help="it's help",
        options=(option("-q", "--quiet"), option("--json")),
        positionals=tuple(positionals),
        subcommands=subcommands,
    )


COMMANDS = [
    surface("plan", positionals=[option(metavar=RECIPE_INPUTS)]),
    surface("config", subcommands=("show", "schema")),
    surface("config", "show", positionals=[option(metavar=RECIPE_INPUTS)]),
    surface("config", "schema"),
    surface("completion", positionals=[option(metavar="SHELL", choices=("bash", "zsh"))]),
]

CASES = {
    "trainwright p": {"plan"},
    "trainwright config s": {"show", "schema"},
    "trainwright completion ": {"bash", "zsh"},
    "trainwright plan --j": {"--json"},
    "trainwright plan --quiet train.l": {"train.lr="},
    "trainwright config show tra": {"train.lr=", "train.compile="},
    "trainwright plan fold": {"folder/"},
    "trainwright plan folder/": {"folder/r.yaml"},
}


@pytest.fixture
def shell(tmp_path):
    """``shell(program, script)``: what it prints, run in a folder with a recipe and another file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "r.yaml").touch()
    (tmp_path / "folder" / "notes.txt").touch()

    def _run(program, script):
        done = subprocess.run([program, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return done.stdout

    return _run


def bash_completions(shell, line):
    ask = (
        f"COMP_WORDBREAKS=$' \\t\\n\"=:'; COMP_LINE={line!r}; COMP_POINT={len(line)}; _trainwright;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(shell("bash", bash(COMMANDS, WORDS) + ask).split())


@pytest.mark.parametrize(("line", "expected"), CASES.items())
def test_bash_completes(shell, line, expected):
    assert bash_completions(shell, line) == expected


def test_bash_completes_values_behind_the_equals_sign(shell):
    assert bash_completions(shell, "trainwright plan train.compile=") == {"true", "false"}
    assert bash_completions(shell, "trainwright plan train.compile=t") == {"true"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_script(shell):
    assert shell("zsh", f"autoload -Uz compinit && compinit -u -D\n{zsh(COMMANDS, WORDS)}\nwhence -w _trainwright") == (
        "_trainwright: function\n"
    )


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "expected"), CASES.items())
def test_fish_completes(shell, line, expected):
    printed = shell("fish", f"{fish(COMMANDS, WORDS)}\ncomplete -C {line!r}")
    completions = {row.split("\t")[0] for row in printed.splitlines()}
    assert expected <= completions


def test_the_words_are_the_recipe_s():
    words = recipe_words()
    assert {"train.optimizer.lr=", "train.exec.compile=true", "model.family=llama", "data.sources.0.kind=files"} <= set(
        words
    )
    assert "train=" not in words
