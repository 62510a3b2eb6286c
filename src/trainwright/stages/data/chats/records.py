"""Records to chats. A record that is no chat, or one out of order, has a reason, which is counted.

The *form* of a chat is what cleaning, deduplication and the split see: its messages as JSON, ``[["user", "..."],
["assistant", "..."]]``; of preferences ``{"chosen": <chat>, "rejected": <chat>}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainwright.spec.sections.corpus.sources import ChatsSource, PreferencesSource

Turn = tuple[str, str]
"""Role and content."""

MESSAGES_KEYS = ("messages", "conversations")
ROLES: Mapping[str, str] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
"""Names of roles that common datasets use."""
_SHOWN = 40


class NoChat(Exception):
    """A record is no chat; the text is the reason."""


def chat_form(record: Mapping[str, Any], section: ChatsSource) -> str:
    """Returns the form of the chat in a record. Raises ``NoChat``."""
    keys = MESSAGES_KEYS if section.messages_key is None else (section.messages_key,)
    key = next((key for key in keys if record.get(key) is not None), None)
    if key is not None:
        chat = turns(record[key], key)
    elif section.messages_key is None and record.get(section.prompt_key) is not None:
        chat = [
            *_said("user", record, section.prompt_key),
            *_said("assistant", record, section.answer_key),
        ]
    else:
        wanted = (*keys, section.prompt_key) if section.messages_key is None else keys
        raise NoChat(f"no key {' or '.join(map(repr, wanted))}")
    check(chat)
    return _json(chat)


def preference_form(record: Mapping[str, Any], section: PreferencesSource) -> str:
    """Returns the form of the two chats in a record. Raises ``NoChat``."""
    prompt = [] if record.get(section.prompt_key) is None else _said("user", record, section.prompt_key)
    chats = {}
    for name, key in (("chosen", section.chosen_key), ("rejected", section.rejected_key)):
        said = _said("assistant", record, key)
        chats[name] = said if said[: len(prompt)] == prompt and len(said) > len(prompt) else [*prompt, *said]
        check(chats[name])
    if chats["chosen"][:-1] != chats["rejected"][:-1]:
        raise NoChat("the two answers have different prompts")
    if chats["chosen"] == chats["rejected"]:
        raise NoChat("the two answers are the same")
    return _json(chats)


def chats_of(form: str) -> list[list[dict[str, str]]]:
    """Returns the messages of a form: of one chat, or of the chosen and the rejected one."""
    value = json.loads(form)
    chats = [value["chosen"], value["rejected"]] if isinstance(value, dict) else [value]
    return [[{"role": role, "content": content} for role, content in chat] for chat in chats]


def form_of(chats: Sequence[Sequence[Mapping[str, str]]]) -> str:
    """Returns the form of what ``chats_of`` gives."""
    turned = [[(message["role"], message["content"]) for message in chat] for chat in chats]
    return _json(turned[0] if len(turned) == 1 else {"chosen": turned[0], "rejected": turned[1]})


def turns(value: Any, key: str) -> list[Turn]:
    """Returns the messages of a list, whichever names its keys have. Raises ``NoChat``."""
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise NoChat(f"{key!r} is not a list of messages")
    return [_turn(message) for message in value]


def _turn(message: Mapping[str, Any]) -> Turn:
    role, content = (
        message.get(ours, message.get(theirs)) for ours, theirs in (("role", "from"), ("content", "value"))
    )
    if not isinstance(role, str):
        raise NoChat("a message without a role")
    if role not in ROLES:
        raise NoChat(f"unknown role {role[:_SHOWN]!r}")
    if not isinstance(content, str):
        raise NoChat("a message whose content is not a string")
    return ROLES[role], content


def _said(role: str, record: Mapping[str, Any], key: str) -> list[Turn]:
    value = record.get(key)
    if value is None:
        raise NoChat(f"no key {key!r}")
    return [(role, value)] if isinstance(value, str) else turns(value, key)


def check(chat: Sequence[Turn]) -> None:
    """Checks that user and assistant speak in turn, after a system message at most, and that an answer is last.

    Raises:
        NoChat: they do not; says what is out of order.
    """
    spoken = chat[1:] if chat and chat[0][0] == "system" else chat
    if not spoken:
        raise NoChat("no message")
    if any(role == "system" for role, _ in spoken):
        raise NoChat("a system message that is not the first")
    if spoken[0][0] != "user":
        raise NoChat("the user does not begin")
    for (before, _), (role, _) in pairwise(spoken):
        if role == before:
            raise NoChat(f"two messages of the {role} in a row")
    if spoken[-1][0] != "assistant":
        raise NoChat("the last message is no answer")
    for role, content in spoken:
        if not content.strip():
            raise NoChat("an empty answer" if role == "assistant" else "an empty question")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
