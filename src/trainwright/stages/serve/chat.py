"""Conversations to prompts: by the model's own chat template, or plainly where it has none.

The plain form writes each turn as a paragraph ``Role: text`` and lets the model go on after ``Assistant:``; the answer
ends where the model begins a turn of the user. A model that was never tuned on conversations has no form of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trainwright.core.errors import DataError
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import Message

PLAIN_STOP = ("\nUser:",)
"""Ends an answer in the plain form, beside the request's own stop texts."""

_ROLES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}

Render = Callable[[Sequence[Message]], str]


def plain(messages: Sequence[Message]) -> str:
    """Returns the prompt in the plain form."""
    turns = [f"{_ROLES[message.role]}: {message.content}\n\n" for message in messages]
    return "".join(turns) + "Assistant:"


def templated(template: str, special_tokens: Mapping[str, str]) -> Render:
    """Returns a function that renders conversations by a Hugging Face chat template, in Jinja's sandbox.

    Raises:
        DataError: the template is no valid Jinja.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    try:
        compiled = environment.from_string(template)
    except TemplateError as error:
        raise DataError("the chat template is no valid Jinja", where="chat_template", seen=str(error)) from error

    def render(messages: Sequence[Message]) -> str:
        turns = [message.model_dump(include={"role", "content", "name"}, exclude_none=True) for message in messages]
        try:
            return compiled.render(messages=turns, add_generation_prompt=True, **special_tokens)
        except TemplateError as error:
            message = f"the model's chat template refuses these messages: {error}"
            raise ApiError(400, message, param="messages", code="chat_template_error") from error

    return render


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)
