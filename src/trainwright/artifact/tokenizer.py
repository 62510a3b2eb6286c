"""A tokenizer.json that a recipe names, and the token between documents; ``model.conventions`` has a model's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from trainwright.artifact.model_folder import HUGGINGFACE, TOKENIZER, TOKENIZER_CONFIG
from trainwright.core.errors import DataError, MissingPackage
from trainwright.core.paths import read_object, regular

END_OF_TEXT_ID = 256
"""The token between documents, in a tokenizer that is trained here: it follows the 256 bytes."""


def load_tokenizer(path: Path) -> Any:
    """Returns the ``tokenizers.Tokenizer`` of a tokenizer.json.

    Raises:
        DataError: it is missing, is no UTF-8, or is no tokenizer.json.
        MissingPackage: ``tokenizers`` is not installed.
    """
    try:
        package: Any = import_module("tokenizers")
    except ImportError as error:  # the package is not in the core
        raise MissingPackage("tokenizers", needed_for="reading a tokenizer", extra="data") from error
    try:
        return package.Tokenizer.from_str(regular(path).read_text(encoding="utf-8"))
    except Exception as error:  # the package's Rust code raises plain Exception for anything it cannot parse
        seen = getattr(error, "strerror", None) or str(error)
        raise DataError("cannot read the tokenizer", where=path, seen=seen, expected="a tokenizer.json") from error


def end_of_text_id(tokenizer: Any, text: str, *, where: object) -> int:
    """Returns the id of the token that stands between documents.

    Raises:
        DataError: the tokenizer has no such token.
    """
    identity: int | None = tokenizer.token_to_id(text)
    if identity is None:
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        raise DataError(
            "this tokenizer has no token {text!r}",
            where=where,
            seen=", ".join(special[:8]) or "no special tokens",
            fix="set data.tokenizer.end_of_text",
            text=text,
        )
    return identity


def end_of_text_of(directory: Path) -> str | None:
    """Returns the token that ends a text in the model of a directory, or None where no file says it.

    It is ``eos_token`` of the tokenizer's settings, or ``sep_token``, which ends a text for BERT and has no other name
    there; else what ``eos_token_id`` of the configuration means, the first of several; else what the tokenizer puts
    behind a text; else its only special token, as one that is trained here has it.

    Raises:
        DataError: a file cannot be read, or is no tokenizer.
    """
    settings = _optional(directory / TOKENIZER_CONFIG)
    for name in ("eos_token", "sep_token"):
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            return text
    ends = _optional(directory / HUGGINGFACE).get("eos_token_id")
    ends = next(iter(ends), None) if isinstance(ends, list) else ends
    tokenizer = _optional(directory / TOKENIZER)
    try:
        tokens = {token["id"]: token["content"] for token in tokenizer.get("added_tokens") or ()}
        behind = _behind_a_text(tokenizer.get("post_processor") or {})
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise DataError("this is no tokenizer.json", where=directory / TOKENIZER, seen=str(error)) from error
    if ends is not None:
        return tokens.get(ends)
    return behind if behind is not None or len(tokens) != 1 else next(iter(tokens.values()))


def _behind_a_text(processor: Mapping[str, Any]) -> str | None:
    """Returns the token that a tokenizer's post-processor ends one text with, of the forms that ``tokenizers`` has."""
    if "sep" in processor:  # BertProcessing, RobertaProcessing: text and number
        return str(processor["sep"][0])
    for part in processor.get("processors") or ():  # Sequence
        if (behind := _behind_a_text(part)) is not None:
            return behind
    last = (processor.get("single") or [{}])[-1]  # TemplateProcessing
    return str(last["SpecialToken"]["id"]) if "SpecialToken" in last else None


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
