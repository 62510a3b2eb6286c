"""Conversations to prompts: by the model's own chat template, or plainly where it has none.

The plain form writes each turn as a paragraph ``Role: text`` and lets the model go on after ``Assistant:``; the answer
ends where the model begins a turn of the user. A model that was never tuned on conversations has no form of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from trainwright.model.chats.template import ChatTemplate, TemplateRefuses
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


def templated(text: str, special_tokens: Mapping[str, str]) -> Render:
    """Returns a function that renders conversations by a Hugging Face chat template, in Jinja's sandbox.

    Raises:
        DataError: the template is no valid Jinja.
    """
    known = {"strftime_now": lambda form: datetime.now().astimezone().strftime(form)}
    template = ChatTemplate(text=text, source="chat_template", special_tokens=special_tokens)
    write = template.renderer(known)

    def render(messages: Sequence[Message]) -> str:
        turns = [message.model_dump(include={"role", "content", "name"}, exclude_none=True) for message in messages]
        try:
            return write(turns, True)
        except TemplateRefuses as error:
            message = f"the model's chat template refuses these messages: {error}"
            raise ApiError(400, message, param="messages", code="chat_template_error") from error

    return render
