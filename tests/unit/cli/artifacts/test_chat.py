"""The conversation in the terminal: lines in, answers out, and what is told beside them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from trainwright.cli.artifacts import chat
from trainwright.cli.main import main
from trainwright.core.errors import RecipeError


class Parrot:
    """A conversation that says each word of a question again, one at a time."""

    def __init__(self, folder, *, sampling, system):
        self.folder, self.sampling, self.system = folder, sampling, system
        self.context_tokens = 8
        self.messages = []
        self.during = None

    def reset(self):
        self.messages = []

    def ask(self, question, *, stopped):
        if len(question.split()) > 4:
            raise RecipeError("too long", seen="9 tokens")
        answer = SimpleNamespace(prompt_tokens=1, tokens=0, text="", finish=None)
        for word in question.split():
            if stopped():
                answer.finish = "interrupted"
                break
            answer.text += word
            answer.tokens += 1
            yield word, answer
            if word == "ctrl-c":
                os.kill(os.getpid(), signal.SIGINT)
        if answer.finish is None:
            answer.finish = "context" if question == "full" else "stop"
        self.messages += [question, answer.text]


@pytest.fixture
def talk(monkeypatch, tmp_path, capsys):
    """Calls the command with what is said, on a parrot; gives its code, stdout, stderr and the conversation."""
    (tmp_path / "model.json").write_text("{}")
    made = []

    def opened(*arguments, **options):
        made.append(Parrot(*arguments, **options))
        return made[-1]

    doors = {
        "trainwright.model.chats.conversation:open_conversation": opened,
        "trainwright.stages.serve.foreground:verify_bundle": lambda folder: None,
    }
    monkeypatch.setattr(chat, "load", lambda name, kind: doors[name])

    def call(said, *options, stdin=io.StringIO):
        monkeypatch.setattr(sys, "stdin", stdin(said))
        code = main(["chat", str(tmp_path), *options])
        seen = capsys.readouterr()
        return code, seen.out, seen.err, made[-1] if made else None

    return call


def test_a_line_is_a_message_and_answers_alone_are_on_stdout(talk) -> None:
    code, out, err, parrot = talk("a b\n\nc\n", "--seed", "3", "--temperature", "0", "--max-tokens", "9")
    assert (code, out) == (0, "ab\nc\n")
    assert "8 tokens of context" in err and chat.ASK not in err
    assert (parrot.sampling.seed, parrot.sampling.temperature, parrot.sampling.max_tokens) == (3, 0, 9)
    assert parrot.messages == ["a b", "ab", "c", "c"]


def test_commands_begin_anew_and_end(talk) -> None:
    code, out, err, parrot = talk("a\n/reset\nb\n/quit\nc\n", "--system", "Be brief.")
    assert (code, out, parrot.messages, parrot.system) == (0, "a\nb\n", ["b", "b"], "Be brief.")
    assert "begins anew" in err


def test_what_cannot_be_answered_is_told_and_the_rest_goes_on(talk) -> None:
    said = b"1 2 3 4 5\n/rest\n\xff\nb\n"
    code, out, err, parrot = talk(said, stdin=lambda data: io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    assert (code, out, parrot.messages) == (1, "b\n", ["b", "b"])
    for line in (
        "not answered: too long (seen 9 tokens)",
        "not answered: no such command (seen /rest, expected /reset or /quit)",
        "not answered: a message is text (seen a byte that is none, at character 1)",
    ):
        assert line in err


def test_ctrl_c_ends_the_answer_and_not_the_program(talk) -> None:
    before = signal.getsignal(signal.SIGINT)
    code, out, err, parrot = talk("x ctrl-c y z\nb\n")
    assert (code, out) == (0, "xctrl-c\nb\n")
    assert "interrupted" in err and parrot.messages == ["x ctrl-c y z", "xctrl-c", "b", "b"]
    assert signal.getsignal(signal.SIGINT) is before


class Keyboard(io.StringIO):
    """Somebody who presses Ctrl-C before each line."""

    pressed = False

    def isatty(self):
        return True

    def readline(self, *arguments):
        self.pressed = not self.pressed
        if self.pressed:
            raise KeyboardInterrupt
        return super().readline(*arguments)


def test_at_a_terminal_ctrl_c_takes_back_a_line_and_there_is_a_prompt(talk) -> None:
    code, out, err, _ = talk("a\n", stdin=Keyboard)
    assert (code, out) == (0, "a\n")
    assert chat.ASK in err and err.count(chat.HELP) == 3  # at the start, and before each of two lines


def test_an_answer_that_fills_the_context_is_told(talk) -> None:
    _, out, err, _ = talk("full\n")
    assert out == "full\n"
    assert "the model's context of 8 tokens is full: /reset" in err


def test_json_is_one_document_at_the_end(talk) -> None:
    code, out, _, _ = talk("a b\nc\n", "--json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "trainwright.chat/1")
    assert document["exchanges"][0] == {
        "question": "a b",
        "answer": "ab",
        "finish": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 2,
    }


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--temperature", "-1"), "--temperature: no such temperature (seen -1.0, expected 0 or more)"),
        (("--temperature", "nan"), "--temperature: no such temperature"),
        (("--max-tokens", "0"), "--max-tokens: an answer has at least a token (seen 0)"),
    ],
)
def test_wrong_options_are_refused_before_a_model_is_loaded(talk, options, line) -> None:
    code, _, err, parrot = talk("a\n", *options)
    assert (code, parrot) == (2, None)
    assert line in err


def test_a_pipe_ends_at_ctrl_c_while_nothing_is_answered(tmp_path) -> None:
    """In a process of its own: Ctrl-C at an idle pipe is the end, as of every other command."""
    program = (
        "import sys; from trainwright.cli.artifacts import chat; from trainwright.cli.main import main\n"
        "from types import SimpleNamespace\n"
        "made = SimpleNamespace(context_tokens=8, messages=[])\n"
        "chat.load = lambda name, kind: lambda *a, **k: made\n"
        "sys.exit(main())"
    )
    (tmp_path / "model.json").write_text("{}")
    words = [sys.executable, "-c", program, "chat", str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "talking to" in process.stderr.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130 and "interrupted" in rest
