"""Talk to a trained model in the terminal: a line is a message, and the answer comes as it is made.

BUNDLE is an export, a trained artefact, a model directory from Hugging Face with a chat template, or a workspace, whose
newest model with one is taken. /reset begins anew, /quit or Ctrl-D ends, Ctrl-C ends an answer. Lines may come from a
pipe: answers alone go to stdout then, and the exit code is 1 where a message was refused.
"""

from __future__ import annotations

import io
import math
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError
from trainwright.core.paths import local_path
from trainwright.core.registry import load

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser

ASK = "> "
TEMPERATURE = 0.7
HELP = "/reset begins anew, /quit or Ctrl-D ends, Ctrl-C ends an answer"
COMMANDS = ("/reset", "/quit")


class Talk(Protocol):
    """What is asked of a conversation (``trainwright.model.chats.conversation``)."""

    context_tokens: int
    messages: list[dict[str, str]]

    def reset(self) -> None:
        """Forget what was said."""

    def ask(self, question: str, *, stopped: Any) -> Iterator[tuple[str, Any]]:
        """Yields the pieces of an answer, each with the answer so far."""


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model's directory, an export, or a workspace with one")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the first message")
    parser.add_argument(
        "--temperature", type=float, default=TEMPERATURE, metavar="T", help="0 takes the likeliest token (default: 0.7)"
    )
    parser.add_argument("--max-tokens", type=int, metavar="N", help="longest answer (default: the rest of the context)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the sampling (default: another one each time)")


def run(args: argparse.Namespace) -> int:
    """Talk until the end of the input; returns 1 where a message was refused."""
    _check(args)
    output = Output.of(args)
    folder = _folder(args.bundle)
    # By name: the command line must not load torch to print its help.
    talk: Talk = load("trainwright.model.chats.conversation:open_conversation", kind="conversation")(
        folder, sampling=_sampling(args), system=args.system
    )
    output.note(f"talking to {folder}, in {talk.context_tokens} tokens of context; {HELP}")
    terminal = Terminal(output)
    refused = _talk(talk, terminal)
    payload = {"model": folder, "exchanges": terminal.exchanges, "messages": talk.messages}
    output.result(payload, lambda: None)
    return 1 if refused else 0


def _check(args: argparse.Namespace) -> None:
    """Refuses what can be known before a model is loaded."""
    if not (math.isfinite(args.temperature) and args.temperature >= 0):
        raise RecipeError("no such temperature", where="--temperature", seen=args.temperature, expected="0 or more")
    if args.max_tokens is not None and args.max_tokens < 1:
        raise RecipeError("an answer has at least a token", where="--max-tokens", seen=args.max_tokens)


def _folder(bundle: str) -> Path:
    """Returns the folder of the model, whose files are what its manifest says."""
    from trainwright.artifact.bundle import chat_model

    folder = chat_model(local_path(bundle))
    load("trainwright.stages.serve.foreground:verify_bundle", kind="server")(folder)
    return folder


def _sampling(args: argparse.Namespace) -> Any:
    from trainwright.spec.generation import Sampling

    return Sampling(
        max_tokens=sys.maxsize if args.max_tokens is None else args.max_tokens,
        temperature=args.temperature,
        seed=secrets.randbits(63) if args.seed is None else args.seed,
    )


class Terminal:
    """Reads lines, and shows answers while they come; with ``--json`` the end of the program shows them.

    Args:
        output: of the command.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self.exchanges: list[dict[str, Any]] = []
        self._said = sys.stdin or io.StringIO()  # there is none where it was closed from the start
        self._by_hand = self._said.isatty()
        if isinstance(self._said, io.TextIOWrapper):
            self._said.reconfigure(errors="surrogateescape")  # bytes that are no text are refused with their message

    def lines(self) -> Iterator[str]:
        """Yields what the user says, until the end of the input; Ctrl-C takes back what is not sent yet."""
        while True:
            try:
                line = self._line()
            except KeyboardInterrupt as stop:
                if not self._by_hand or type(stop) is not KeyboardInterrupt:  # SIGTERM and its like are others
                    raise
                self.output.note(f"\n{HELP}")
                continue
            if not line:
                return
            yield line.strip()

    def _line(self) -> str:
        """Returns a line with its end; empty at the end of the input."""
        if self._by_hand:
            self.output.stderr.write(ASK)
            self.output.stderr.flush()
        return self._said.readline()

    def show(self, text: str) -> None:
        """Shows a piece of an answer at once."""
        if not self.output.json:
            self.output.stdout.write(text)
            self.output.stdout.flush()

    def refuse(self, error: RecipeError) -> None:
        """Says why a message cannot be answered; the conversation goes on without it."""
        self.output.note(f"not answered: {error}")


def _talk(talk: Talk, terminal: Terminal) -> int:
    """Answers every line; returns how many were refused."""
    refused = 0
    for line in terminal.lines():
        if line == "/quit":
            break
        if line == "/reset":
            talk.reset()
            terminal.output.note("forgotten: the next message begins anew")
            continue
        try:
            if line:
                _check_line(line)
                _answer(talk, terminal, line)
        except RecipeError as error:
            refused += 1
            terminal.refuse(error)
    return refused


def _check_line(line: str) -> None:
    if line.startswith("/") and " " not in line:
        raise RecipeError("no such command", seen=line, expected=" or ".join(COMMANDS))
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise RecipeError("a message is text", seen=f"a byte that is none, at character {error.start + 1}") from error


def _answer(talk: Talk, terminal: Terminal, question: str) -> None:
    """Shows the answer to a question as it comes, and says where it does not end by itself."""
    answer: Any = None
    with _interrupts() as interrupted:
        for text, so_far in talk.ask(question, stopped=lambda: bool(interrupted)):
            answer = so_far
            terminal.show(text)
    terminal.show("\n")
    if answer is None:  # Ctrl-C came before the first token
        terminal.output.note("interrupted")
        return
    told = {
        "context": f"the answer ends because the model's context of {talk.context_tokens} tokens is full: /reset",
        "length": f"the answer ends at --max-tokens, {answer.tokens}",
        "interrupted": "interrupted",
    }
    if answer.finish in told:
        terminal.output.note(told[answer.finish])
    terminal.exchanges.append(
        {
            "question": question,
            "answer": answer.text,
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.tokens,
        }
    )


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects Ctrl-C while an answer is made, so that it ends between two tokens and no engine is left half way."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
