"""How texts for a model begin and end: end tokens, start token, chat template, as its directory says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from trainwright.artifact.model_folder import CHAT_TEMPLATE, TOKENIZER_CONFIG
from trainwright.core.errors import DataError
from trainwright.core.paths import read_object


@dataclass(frozen=True, kw_only=True, slots=True)
class Conventions:
    """What a model's texts have in common.

    ``end_ids`` are the tokens that end an answer; ``start_id`` stands for an empty prompt; ``chat_template`` is the
    Jinja text that turns messages into a prompt, and ``special_tokens`` are the names it may refer to.
    """

    end_ids: frozenset[int]
    start_id: int | None
    chat_template: str | None
    special_tokens: Mapping[str, str]


def read_conventions(directory: Path, tokenizer: Tokenizer) -> Conventions:
    """Returns the conventions of a trained artefact or a Hugging Face directory.

    A trained artefact says none of this: there every special token of the tokenizer ends a text.

    Raises:
        DataError: a file is damaged, or asks for something that is not supported.
    """
    config = _optional(directory / "config.json")
    settings = _optional(directory / TOKENIZER_CONFIG)
    ends = _end_ids(config, _optional(directory / "generation_config.json")) or special_ids(tokenizer)
    return Conventions(
        end_ids=ends,
        start_id=_start_id(config, ends),
        chat_template=read_chat_template(directory),
        special_tokens=read_special_tokens(settings),
    )


def _end_ids(config: Mapping[str, Any], generation: Mapping[str, Any]) -> frozenset[int]:
    """``eos_token_id`` of the generation settings, else of the configuration: a number or a list of them."""
    value = generation.get("eos_token_id", config.get("eos_token_id"))
    return frozenset(value if isinstance(value, list) else [] if value is None else [value])


def _start_id(config: Mapping[str, Any], ends: frozenset[int]) -> int | None:
    """Returns the beginning-of-text token, else the end-of-text token: documents stand after one another's end."""
    bos: int | None = config.get("bos_token_id")
    return bos if bos is not None else min(ends, default=None)


def read_chat_template(directory: Path) -> str | None:
    """Returns the chat template of a model directory, from a file of its own or from the tokenizer's settings.

    Raises:
        DataError: the file is damaged, or there are several templates.
    """
    path = directory / CHAT_TEMPLATE
    template = read_text(path) if path.is_file() else _optional(directory / TOKENIZER_CONFIG).get("chat_template")
    if template is None or isinstance(template, str):
        return template
    raise DataError(
        "several chat templates are not supported",
        where=directory / TOKENIZER_CONFIG,
        seen="chat_template is a list",
        expected="one template",
    )


def read_special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns ``bos_token``, ``eos_token`` and their like of a tokenizer's settings; chat templates refer to them."""
    texts = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            texts[name] = text
    return texts


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    """Returns a UTF-8 file of a model directory.

    Raises:
        DataError: it is missing, or no UTF-8.
    """
    if not path.is_file():  # a named pipe would be waited for
        raise DataError("a file of this model is missing", where=path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError("this file is not UTF-8", where=path, seen=str(error)) from error


def read_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json, without padding and truncation.

    Raises:
        DataError: the file is missing or damaged.
    """
    text = read_text(path)
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        # The package raises bare Exception for anything it cannot parse.
        raise DataError("cannot read the tokenizer", where=path, seen=str(error)) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of the tokenizer's special tokens: none of them is text, so any of them ends one."""
    return frozenset(token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special)
