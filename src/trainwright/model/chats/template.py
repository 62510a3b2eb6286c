"""Chat templates: Jinja, in its sandbox, as Hugging Face model directories have them; and two of our own by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trainwright.artifact.model_folder import CHAT_TEMPLATE, TOKENIZER_CONFIG
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError
from trainwright.core.paths import read_object
from trainwright.model.conventions import read_chat_template, read_special_tokens, read_text

Messages = Sequence[Mapping[str, str]]
"""The turns of a chat: each has a ``role`` (system, user, assistant) and its ``content``."""
Render = Callable[[Messages, bool], str]
"""From messages to text; with True the text goes on to where an answer begins."""

_LOOP = "{% for message in messages %}"
_TURNS = (
    _LOOP + "{{ '### ' + message.role + '\\n' + message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant\\n' }}{% endif %}"
)
_CHATML = (
    _LOOP + "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BUILT_IN: Mapping[str, str] = {"turns": _TURNS, "chatml": _CHATML}
"""``turns`` ends an answer with the token between documents, which every tokenizer has; ``chatml`` needs its own."""
NEEDED: Mapping[str, tuple[str, ...]] = {"chatml": ("<|im_start|>", "<|im_end|>")}
"""Special tokens that a tokenizer must have for a template."""


class TemplateRefuses(Exception):
    """A template does not take these messages; the text says why."""


class _Generation(Extension):
    """``{% generation %}``, with which some templates mark answers, shows what is in it."""

    tags = {"generation"}  # noqa: RUF012  # as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A template, where it comes from, and the special tokens that it may name (``bos_token``, ``eos_token``)."""

    text: str
    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def renderer(self, functions: Mapping[str, Callable[..., Any]] | None = None) -> Render:
        """Returns a function that renders messages, and raises ``TemplateRefuses`` where the template does not.

        Args:
            functions: that the template may call besides; without ``strftime_now`` no text depends on the day.

        Raises:
            DataError: the template is no valid Jinja.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals.update(functions or {})
        try:
            compiled = environment.from_string(self.text)
        except TemplateError as error:
            raise DataError("the chat template is no valid Jinja", where=self.source, seen=str(error)) from error

        def render(messages: Messages, to_answer: bool) -> str:
            try:
                return compiled.render(messages=messages, add_generation_prompt=to_answer, **self.special_tokens)
            except (TemplateError, TypeError, ValueError, LookupError) as error:
                raise TemplateRefuses(str(error)) from error

        return render

    def write(self, directory: Path) -> None:
        """Write the template and its special tokens as a Hugging Face directory has them.

        Raises:
            OSError: it cannot be written.
        """
        settings = json.dumps(dict(self.special_tokens), indent=1, sort_keys=True, ensure_ascii=False)
        write_atomically(directory / CHAT_TEMPLATE, self.text.encode())
        write_atomically(directory / TOKENIZER_CONFIG, settings.encode() + b"\n")


def read_template(source: str | None, tokenizer: Path | None, *, end_of_text: str) -> ChatTemplate:
    """Returns the template that a recipe names, or that of the directory which the tokenizer lies in.

    Args:
        source: a name of ``BUILT_IN``, a Jinja file, or a model directory; None: the tokenizer's.
        tokenizer: a tokenizer.json, whose directory says which special tokens there are; None where one is trained.
        end_of_text: stands for ``eos_token`` and ``bos_token`` where no file says which they are.

    Raises:
        DataError: there is no template, or a file is damaged.
    """
    told: dict[str, str] = {"bos_token": end_of_text, "eos_token": end_of_text}
    settings = None if tokenizer is None else tokenizer.parent / TOKENIZER_CONFIG
    if settings is not None and settings.is_file():
        told |= read_special_tokens(read_object(settings))
    if source is not None and source in BUILT_IN:
        return ChatTemplate(text=BUILT_IN[source], source=source, special_tokens=told)
    place = Path(source).expanduser() if source else None if tokenizer is None else tokenizer.parent
    if place is not None and place.is_file():
        return ChatTemplate(text=read_text(place), source=str(place), special_tokens=told)
    if place is not None and place.is_dir():
        text = read_chat_template(place)
        if text is not None:
            return ChatTemplate(text=text, source=str(place), special_tokens=told)
    raise DataError(
        "there is no chat template",
        seen=place or "a tokenizer that is trained here",
        expected=f"{', '.join(BUILT_IN)}, a Jinja file, or a model directory with {CHAT_TEMPLATE}",
        fix="set data.chat.template",
    )


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)
