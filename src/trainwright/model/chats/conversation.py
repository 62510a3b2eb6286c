"""A conversation with one model: its own chat template, and answers piece by piece from the engine that serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from trainwright.artifact.model_folder import CHAT_TEMPLATE, TOKENIZER
from trainwright.core.errors import DataError, RecipeError, TrainingError
from trainwright.model.chats.template import ChatTemplate, Render, TemplateRefuses
from trainwright.model.conventions import read_conventions, read_tokenizer
from trainwright.model.generation.engine import open_engine, read_writer
from trainwright.model.generation.prompts import PromptEncoder
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.generation.texts import TextGenerator
from trainwright.spec.generation import Failure, Sampling

Message = dict[str, str]
"""``role`` (system, user, assistant) and ``content``."""


@dataclass(kw_only=True, slots=True)
class Answer:
    """What came of one question.

    ``finish`` is "stop" at the answer's own end, "length" at ``--max-tokens``, "context" where the model's context is
    full, and "interrupted" where the user had enough; None while it goes on.
    """

    prompt_tokens: int
    tokens: int = 0
    text: str = ""
    finish: str | None = None


@dataclass(kw_only=True)
class Conversation:
    """Messages so far, and the model that answers them.

    Args:
        render: from messages to a prompt.
        encoder: from a prompt to tokens.
        generator: over an engine of one place; nobody else may use it.
        context_tokens: what prompt and answer fit into.
        sampling: settings of every answer; its ``max_tokens`` are at most what the context leaves.
        system: the first message, in every conversation; None: there is none.
    """

    render: Render
    encoder: PromptEncoder
    generator: TextGenerator
    context_tokens: int
    sampling: Sampling
    system: str | None = None
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def ask(self, question: str, *, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, Answer]]:
        """Yields the pieces of the answer as they come, each with the answer so far.

        Question and answer are part of the conversation once the answer ends, or is stopped after its first token; a
        question that is refused, or whose answer fails, is not.

        Args:
            question: the user's message.
            stopped: asked before each token; True ends the answer where it is.

        Raises:
            RecipeError: the template refuses the message, or the conversation is longer than the context.
            TrainingError: the network computes no finite numbers.
        """
        asked = [*self.messages, {"role": "user", "content": question}]
        prompt = self._prompt(asked)
        room = self.context_tokens - len(prompt)
        sampling = replace(self.sampling, max_tokens=min(self.sampling.max_tokens, room))
        answer = Answer(prompt_tokens=len(prompt))
        for text in self._pieces(prompt, sampling, answer, stopped):
            yield text, answer
        if answer.finish == "length" and sampling.max_tokens == room:
            answer.finish = "context"
        if answer.tokens:
            self.messages = [*asked, {"role": "assistant", "content": answer.text}]

    def _prompt(self, messages: list[Message]) -> list[int]:
        """Returns the tokens of a conversation up to where an answer begins. Raises as ``ask``."""
        try:
            text = self.render(messages, True)
        except TemplateRefuses as error:
            raise RecipeError("the model's chat template refuses this message", seen=str(error)) from error
        tokens = self.encoder.fewest_tokens(text)
        prompt = [] if tokens >= self.context_tokens else self.encoder.encode(text, special=False)
        if prompt and len(prompt) < self.context_tokens:
            return prompt
        raise RecipeError(
            "the conversation leaves no room for an answer",
            seen=f"{len(prompt)} tokens" if prompt else f"at least {tokens} tokens",
            expected=f"below {self.context_tokens}, the model's context of messages and answer",
            fix="/reset, or a shorter message",
        )

    def _pieces(
        self, prompt: list[int], sampling: Sampling, answer: Answer, stopped: Callable[[], bool]
    ) -> Iterator[str]:
        key = self.generator.add(prompt, sampling)
        try:
            while answer.finish is None:
                if stopped():
                    answer.finish = "interrupted"
                    break
                for piece in self.generator.step():
                    if isinstance(piece, Failure):
                        raise TrainingError("the model cannot answer", seen=piece.reason)
                    answer.tokens += 1
                    answer.text += piece.text
                    answer.finish = piece.finish
                    yield piece.text
        finally:
            self.generator.cancel(key)


def open_conversation(directory: Path, *, sampling: Sampling, system: str | None = None) -> Conversation:
    """Returns a conversation with the model of a trained artefact or a Hugging Face directory.

    Raises:
        DataError: a file is missing or damaged, or the model has no chat template.
        RecipeError: the model asks for something that is not supported, or writes no text.
        MachineError: the memory does not hold it.
    """
    read_writer(directory)
    tokenizer = read_tokenizer(directory / TOKENIZER)
    conventions = read_conventions(directory, tokenizer)
    if conventions.chat_template is None:
        raise DataError(
            "this model has no chat template",
            where=directory,
            expected=CHAT_TEMPLATE,
            fix="tune it on chats (task.name=chat), or let trainwright serve complete texts with it",
        )
    template = ChatTemplate(
        text=conventions.chat_template, source=str(directory), special_tokens=conventions.special_tokens
    )
    render = template.renderer({"strftime_now": lambda form: datetime.now().astimezone().strftime(form)})
    engine = open_engine(directory, places=1)
    return Conversation(
        render=render,
        encoder=PromptEncoder(tokenizer),
        generator=TextGenerator(engine, TokenBytes(tokenizer), end_ids=conventions.end_ids),
        context_tokens=engine.context_tokens,
        sampling=sampling,
        system=system,
    )
