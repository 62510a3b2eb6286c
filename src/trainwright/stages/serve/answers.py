"""The answers, in OpenAI's forms: whole objects and the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AnswerKind = Literal["completion", "chat"]

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts of one request."""

    prompt_tokens: int
    completion_tokens: int

    def body(self) -> dict[str, int]:
        """Returns the ``usage`` object."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The frame of one answer: its kind, identity and time."""

    kind: AnswerKind
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, choices: list[tuple[str, str]], usage: Usage) -> dict[str, Any]:
        """Returns the whole answer; ``choices`` are texts and the reasons why they ended."""
        entries = []
        for index, (text, finish) in enumerate(choices):
            content: dict[str, Any] = {"text": text}
            if self.kind == "chat":
                content = {"message": {"role": "assistant", "content": text, "refusal": None}}
            entries.append({"index": index, **content, "logprobs": None, "finish_reason": finish})
        return self._frame("chat.completion", entries) | {"usage": usage.body()}

    def opening(self, index: int) -> dict[str, Any] | None:
        """Returns the first chunk of a choice: a chat names the role; None for a completion."""
        if self.kind == "completion":
            return None
        delta = {"role": "assistant", "content": ""}
        return self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})

    def part(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        """Returns a chunk with some text, or with the reason why the choice ended."""
        content: dict[str, Any] = {"text": text}
        if self.kind == "chat":
            content = {"delta": {"content": text} if text else {}}
        return self._chunk({"index": index, **content, "logprobs": None, "finish_reason": finish})

    def closing(self, usage: Usage) -> dict[str, Any]:
        """Returns the chunk with the token counts."""
        return self._frame("chat.completion.chunk", []) | {"usage": usage.body()}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self._frame("chat.completion.chunk", [choice])

    def _frame(self, chat_object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chat = self.kind == "chat"
        return {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{self.id}",
            "object": chat_object if chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def sse(value: Mapping[str, Any]) -> str:
    """Returns a server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
