"""Which tokens of a chat are answers: those that rendering the chat up to an answer, and up to its end, tells apart.

No mark in the template is needed. The chat is rendered whole, up to where an answer begins (with the generation prompt)
and up to where it ends. Each must begin as the whole does: a template that writes earlier turns in another way once the
chat goes on is refused. Tokens count from the first one that the answer's prompt does not have by itself, to the last
special token of the answer: behind that nobody generates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from trainwright.model.chats.template import ChatTemplate, Messages, Render, TemplateRefuses
from trainwright.model.conventions import special_ids

PROBE = (
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four"},
)
"""A chat that every template takes."""


class Unfit(Exception):
    """A chat cannot be learnt from; the text is the reason, which is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """A chat's tokens, as transformers would give them, which of them are answers, and the bytes of its text."""

    ids: NDArray[np.int64]
    answers: NDArray[np.bool_]
    text_bytes: int


class ChatEncoder:
    """Turns chats into tokens with their answers.

    Args:
        tokenizer: special tokens that the template writes become their ids.
        template: how messages become text.
        only_last: of each chat only the last answer counts.

    Raises:
        DataError: the template is no valid Jinja.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, *, only_last: bool = False) -> None:
        self._tokenizer, self._only_last = tokenizer, only_last
        self._render = template.renderer()
        self._special = np.array(sorted(special_ids(tokenizer)), np.int64)
        spelt = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self._spelt = re.compile("|".join(map(re.escape, spelt))) if spelt else None

    def __call__(self, messages: Messages) -> Encoded:
        """Returns the tokens. Raises ``Unfit`` where the chat cannot be learnt from."""
        for message in messages:
            found = self._spelt.search(message["content"]) if self._spelt else None
            if found:
                raise Unfit(f"a message spells the special token {found[0]!r}")
        text, borders = rendered(self._render, messages, only_last=self._only_last)
        encodings = self._tokenizer.encode_batch_fast(
            [text, *(text[:place] for border in borders for place in border)], add_special_tokens=False
        )
        ids, *starts = (np.array(encoding.ids, np.int64) for encoding in encodings)
        answers = np.zeros(len(ids), np.bool_)
        for first, last in zip(starts[::2], starts[1::2], strict=True):
            begin, end = _common(ids, first), _common(ids, last)
            ends = begin + np.flatnonzero(np.isin(ids[begin:end], self._special))
            answers[begin : ends[-1] + 1 if len(ends) else end] = True
        if not answers[1:].any():  # nothing predicts the first token
            raise Unfit("no token of an answer")
        return Encoded(ids=ids, answers=answers, text_bytes=len(text.encode()))

    def end_id(self) -> int | None:
        """Returns the special token that ends an answer, by which a generation knows where to end; None: there is none.

        Raises:
            Unfit: the template refuses any chat.
        """
        probe = self(PROBE)
        last = int(probe.ids[np.flatnonzero(probe.answers)[-1]])
        return last if last in self._special else None


def rendered(render: Render, messages: Messages, *, only_last: bool = False) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of a chat, and of each answer that counts where it begins and ends in it.

    Raises:
        Unfit: the template refuses the chat, or writes an earlier part in another way once the chat goes on.
    """
    try:
        text = render(messages, False)
        places = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        borders = [
            (_length(text, render(messages[:place], True)), _length(text, render(messages[: place + 1], False)))
            for place in (places[-1:] if only_last else places)
        ]
    except TemplateRefuses as error:
        raise Unfit(f"the chat template refuses it: {error}") from error
    return text, borders


def template_problem(template: ChatTemplate, *, only_last: bool = False) -> str | None:
    """Returns why no chat can be learnt from with this template, or None.

    Raises:
        DataError: it is no valid Jinja.
    """
    try:
        rendered(template.renderer(), PROBE, only_last=only_last)
    except Unfit as error:
        return str(error)
    return None


def _length(text: str, prefix: str) -> int:
    if not text.startswith(prefix):
        raise Unfit("the chat template writes the beginning of a chat in another way once the chat goes on")
    return len(prefix)


def _common(ids: NDArray[np.int64], others: NDArray[np.int64]) -> int:
    """Returns how many ids both begin with."""
    size = min(len(ids), len(others))
    unequal = np.flatnonzero(ids[:size] != others[:size])
    return int(unequal[0]) if len(unequal) else size
