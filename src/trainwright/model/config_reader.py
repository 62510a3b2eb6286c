"""Reading a foreign model configuration: every key that changes the arithmetic is read or refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import RecipeError


class ConfigReader:
    """Checked access to a Hugging Face ``config.json``."""

    def __init__(self, config: Mapping[str, Any], *, where: str) -> None:
        self._config = config
        self._where = where

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1.

        Raises:
            RecipeError: it is missing without a default, or is no such number.
        """
        value = self._config.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            seen = "nothing" if value is None else repr(value)
            raise RecipeError(
                f"bad model configuration: {key}", where=self._where, seen=seen, expected="a whole number >= 1"
            )
        return value

    def refuse(self, key: str, supported: Any) -> None:
        """Go on only where ``key`` is absent or has the one value that the family computes.

        Raises:
            RecipeError: it has another value.
        """
        value = self._config.get(key, supported)
        if value != supported:
            raise self.unsupported(key, value, supported)

    def unsupported(self, key: str, value: Any, supported: Any) -> RecipeError:
        """The error for a setting that the family does not compute."""
        return RecipeError(
            f"this model needs {key}={value!r}, which is not supported", where=self._where, expected=repr(supported)
        )
