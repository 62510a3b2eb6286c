"""``trainwright init``: the journeys' commands as they are typed, every kind, questions in a terminal, mistakes."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
from pathlib import Path

import pytest

from fixtures.answers import DATA, write_answers
from trainwright.cli.main import main
from trainwright.core.config.load import load
from trainwright.pipeline.base.keys import keys_of_base
from trainwright.pipeline.recipes.kinds import KINDS
from trainwright.spec.recipe import Recipe


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    write_answers(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(name: str) -> Recipe:
    return load(Recipe, files=[Path(name)], environ={}, beneath=keys_of_base).value


def test_the_first_journey_as_it_is_typed(capsys) -> None:
    """``init`` and ``plan``, before the weights are here: its 8B parameters, of which LoRA trains a part."""
    assert main(["init", "chat-lora", "--model", "llama3-8b", "--data", "chats.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        "wrote finetune.yaml",
        "  trainwright plan finetune.yaml   # does it fit, and how long does it take",
    ]
    assert "the weights of llama3-8b are not here" in err and err.count("\n") == 1
    recipe = read("finetune.yaml")
    assert (recipe.task.name, recipe.train.method.name, recipe.data.sources[0].kind) == ("chat", "lora", "chats")
    assert recipe.model_spec(vocabulary=128256).ffn_width == 14336
    assert main(["plan", "finetune.yaml", "--json"]) in (0, 1)  # this machine's memory decides
    assert json.loads(capsys.readouterr().out)["schema"].startswith("trainwright.plan/")


def test_the_fourth_journey_as_it_is_typed(capsys) -> None:
    assert main(["init", "classify", "--data", "tickets.csv", "--text", "body", "--label", "queue"]) == 0
    recipe = read("classify.yaml")
    assert recipe.task.labels == ("billing", "sales", "technical")
    assert (recipe.data.sources[0].text_column, recipe.data.sources[0].label_column) == ("body", "queue")
    head = Path("classify.yaml").read_text().splitlines()[0]
    assert head.endswith("Written by: trainwright init classify --data tickets.csv --text body --label queue")
    capsys.readouterr()
    assert main(["config", "validate", "classify.yaml"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_recipe_that_is_planned(kind, capsys) -> None:
    model = ["--model", "llama3.2-1b"] if KINDS[kind].needs_base else []
    assert main(["init", kind, *model, "--data", DATA[kind], "-o", "new file.yaml", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["schema"], written["kind"], written["file"]) == ("trainwright.init/1", kind, "new file.yaml")
    assert written["next"][0] == "trainwright plan 'new file.yaml'"
    recipe = read("new file.yaml")
    assert (recipe.name, recipe.task.name) == ("new-file", KINDS[kind].task["name"])
    assert main(["plan", "new file.yaml", "--json"]) in (0, 1)
    assert "problem" not in json.loads(capsys.readouterr().out)


def test_a_folder_with_a_model_needs_nothing_else(folder) -> None:
    config = {"model_type": "llama", "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64}
    (folder / "base").mkdir()
    (folder / "base" / "config.json").write_text(
        json.dumps({**config, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 128})
    )
    assert main(["init", "chat", "--model", "base", "--data", "chats.jsonl", "-q"]) == 0
    text = Path("finetune.yaml").read_text()
    assert "layers:" not in text and "vocabulary:" not in text
    assert read("finetune.yaml").model.layers == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "error: KIND: no kind is named (expected one of pretrain, "),
        ("chat-loar", "did you mean 'chat-lora'?"),
        ("chat-lora --data chats.jsonl", "error: --model: no model is named"),
        ("chat-lora --model llama3-8b", "error: --data: no data is named"),
        ("classify --data tickets.csv --text bdy", "error: --text: no such column (seen 'bdy', expected one of id, "),
        (
            "pretrain --data pairs.jsonl",
            "error: --text: which column holds the text? (seen prompt, chosen, rejected); ",
        ),
        ("classify --data tickets.csv -o texts", "error: --out-file: this is a folder"),
    ],
)
def test_without_a_terminal_a_mistake_is_one_line(capsys, folder, arguments, line) -> None:
    before = sorted(folder.iterdir())
    assert main(["init", *arguments.split()]) == 2
    seen = capsys.readouterr().err
    assert line in seen and seen.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_a_file_that_is_there_is_kept(capsys) -> None:
    Path("classify.yaml").write_text("mine")
    assert main(["init", "classify", "--data", "tickets.csv"]) == 2
    assert "or over it with --force" in capsys.readouterr().err
    assert Path("classify.yaml").read_text() == "mine"
    assert main(["init", "classify", "--data", "tickets.csv", "--force"]) == 0
    assert Path("classify.yaml").read_text() != "mine"


class Terminal:
    """A child process in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.child, self.end = pty.fork()
        if self.child == 0:
            os.execv(sys.executable, [sys.executable, "-m", "trainwright", *arguments])
        self.seen = ""

    def answer(self, *lines: str) -> None:
        """Waits for a prompt before each line."""
        for line in lines:
            self.prompted()
            self.seen += "\n"
            os.write(self.end, line.encode())

    def prompted(self) -> None:
        """Waits for a prompt."""
        while not self.seen.endswith("> "):
            self.seen += os.read(self.end, 4096).decode()

    def interrupt(self) -> int:
        """Presses Ctrl-C at a prompt until the process ends; returns its exit code.

        Python's readline misses a signal that comes when the prompt is written, and its wait has not begun.
        """
        self.prompted()
        while True:
            os.write(self.end, b"\x03")
            for _ in range(100):
                if select.select([self.end], [], [], 0.1)[0]:
                    try:
                        self.seen += os.read(self.end, 4096).decode()
                    except OSError:  # the child's side is closed
                        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def wait(self) -> int:
        """Returns the exit code."""
        while True:
            try:
                data = os.read(self.end, 4096)
            except OSError:  # the child's side is closed
                break
            if not data:
                break
            self.seen += data.decode()
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def test_three_questions_in_a_terminal(here) -> None:
    terminal = Terminal("init")
    terminal.answer("clasify\n", "classify\n", "\n", "ticket.csv\n", "tickets.csv\n")
    assert terminal.wait() == 0, terminal.seen
    assert "did you mean 'classify'?" in terminal.seen and "did you mean 'tickets.csv'?" in terminal.seen
    assert terminal.seen.count("Which model?") == terminal.seen.count("Which data?") == 1
    assert "[small] > " in terminal.seen and "wrote classify.yaml" in terminal.seen
    assert read("classify.yaml").task.labels == ("billing", "sales", "technical")
    assert "trainwright init classify --model small --data tickets.csv" in Path("classify.yaml").read_text()


def test_a_column_that_no_name_tells_is_asked_and_ctrl_c_says_how_to_go_on(here, folder) -> None:
    terminal = Terminal("init", "pretrain", "--data", "pairs.jsonl")
    terminal.answer("promt\n", "prompt\n")
    assert terminal.wait() == 0, terminal.seen
    assert "Which column holds the text? prompt, chosen, rejected" in terminal.seen
    assert read("pretrain.yaml").data.sources[0].text_key == "prompt"

    stopped = Terminal("init", "chat")
    stopped.answer("llama3-8b\n")
    assert stopped.interrupt() == 130, stopped.seen
    assert "to go on: trainwright init chat --model llama3-8b" in stopped.seen
    assert not (folder / "finetune.yaml").exists()
