"""From an engine's tokens to texts: whole characters, and answers that end at their stop texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.model.generation.text_stream import ByteTable, TextStream
from trainwright.spec.generation import Failure, FinishReason, GenerationRequest, Generator, NewToken, Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """The text that one token added to one answer.

    ``text`` may be empty while a character or a stop text is undecided. ``finish``: None while the answer goes on,
    "stop" at the end of text or a stop text, "length" at the token limit or the end of the context.
    """

    key: int
    text: str
    finish: FinishReason | None


class TextGenerator:
    """Drives an engine and turns its tokens into text. One thread calls all methods.

    Args:
        engine: generates the tokens; nobody else may use it.
        token_bytes: the tokenizer's bytes.
        end_ids: tokens that end an answer.
    """

    def __init__(self, engine: Generator, token_bytes: ByteTable, *, end_ids: frozenset[int]) -> None:
        self._engine, self._token_bytes, self._end_ids = engine, token_bytes, end_ids
        self._streams: dict[int, TextStream] = {}

    @property
    def unfinished(self) -> int:
        """Answers under way and in line."""
        return len(self._streams)

    def add(self, prompt: Sequence[int], sampling: Sampling) -> int:
        """Put an answer in line.

        Returns:
            The key that its pieces carry.

        Raises:
            RecipeError: the engine refuses the prompt.
        """
        key = self._engine.add(GenerationRequest(prompt=prompt, sampling=sampling, end_ids=self._end_ids))
        self._streams[key] = TextStream(self._token_bytes, sampling.stop)
        return key

    def cancel(self, key: int) -> None:
        """Give up an answer; unknown and finished keys change nothing."""
        if self._streams.pop(key, None) is not None:
            self._engine.cancel(key)

    def step(self) -> list[Piece | Failure]:
        """Compute once; at most one piece for each answer."""
        return [self._read(event) for event in self._engine.step()]

    def _read(self, event: NewToken | Failure) -> Piece | Failure:
        key = event.key
        if isinstance(event, Failure):
            del self._streams[key]
            return event
        stream = self._streams[key]
        text = "" if event.finish == "stop" else stream.push(event.token)
        if event.finish is not None:
            text += stream.finish()
        finish: FinishReason | None = "stop" if stream.stopped else event.finish
        if finish is not None:
            del self._streams[key]
            if event.finish is None:
                self._engine.cancel(key)
        return Piece(key=key, text=text, finish=finish)
