"""The guard for a tokenizer.json that a recipe names; ``model.conventions`` has that of a model directory."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError, MissingPackage
from trainwright.core.paths import regular

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
