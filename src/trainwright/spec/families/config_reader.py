"""Reading a foreign model configuration: every key that changes the arithmetic is read or refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, overload

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import did_you_mean
from trainwright.spec.model import Activation

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


class ConfigReader:
    """Checked access to a Hugging Face ``config.json``; every method raises ``RecipeError`` naming the key."""

    def __init__(self, config: Mapping[str, Any], *, where: str) -> None:
        self._config = config
        self._where = where

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Returns a whole number of at least ``least``.

        Raises:
            RecipeError: it is missing without a default, or is no such number.
        """
        value = self._config.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self._refuse(key, value, f"a whole number >= {least}")
        return value

    def optional(self, key: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Returns a whole number of at least ``least``, None where it is null, ``default`` where there is none."""
        if key not in self._config:
            return default
        return None if self._config[key] is None else self.integer(key, least=least)

    def either(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Returns the whole number under the first of ``keys`` that is there: names have changed between versions."""
        there = [key for key in keys if self._config.get(key) is not None]
        return self.integer(there[0] if there else keys[0], default, least=least)

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None) -> float | None: ...
    def number(self, key: str, default: float | None) -> float | None:
        """Returns a positive number."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            self._refuse(key, value, "a positive number")
        return float(value)

    def optional_number(self, key: str, default: float | None) -> float | None:
        """Returns a positive number, None where it is null, ``default`` where there is none."""
        return self.number(key, None) if key in self._config else default

    def needed(self, key: str) -> float:
        """Returns a positive number that must be there."""
        value = self.number(key, None)
        if value is None:
            self._refuse(key, value, "a positive number")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """Returns a list of positive numbers that must be there."""
        value = self._config.get(key)
        if not isinstance(value, list | tuple) or not value:
            self._refuse(key, value, "a list of positive numbers")
        return tuple(ConfigReader({key: each}, where=self._where).needed(key) for each in value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._refuse(key, value, "true or false")
        return value

    def square(self, key: str, default: int) -> int:
        """Returns one side of a square, written as a number or as two equal ones."""
        value = self._config.get(key)
        if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
            return ConfigReader({key: value[0]}, where=self._where).integer(key)
        return self.integer(key, default)

    def sizes(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Returns a list of whole numbers of at least 1."""
        value = self._config.get(key)
        if value is None:
            return default
        whole = isinstance(value, list | tuple) and all(type(size) is int and size > 0 for size in value)
        if not whole or not value:
            self._refuse(key, value, "a list of whole numbers >= 1")
        return tuple(value)

    def indices(self, key: str) -> tuple[int, ...]:
        """Returns a list of whole numbers from 0; empty where there is none."""
        value = self._config.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(type(index) is int and index >= 0 for index in value):
            self._refuse(key, value, "a list of whole numbers >= 0")
        return tuple(value)

    def word(self, key: str, default: str, known: tuple[str, ...]) -> str:
        """Returns one of the ``known`` words."""
        value: str = self._config.get(key, default)
        if value not in known:
            self._refuse(key, value, f"one of {', '.join(known)}")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Returns a list of words, or None where there is none."""
        value = self._config.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            self._refuse(key, value, "a list of names")
        return tuple(value)

    def names_any(self, *keys: str) -> bool:
        """Returns whether one of ``keys`` is there and not null."""
        return any(self._config.get(key) is not None for key in keys)

    def section(self, key: str) -> ConfigReader:
        """Returns what stands under ``key``; an empty one where there is nothing."""
        value = self._config.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self._refuse(key, value, "an object")
        return ConfigReader(value, where=f"{self._where}: {key}")

    def head_size(self, width: int, heads: int) -> int:
        """Returns one head's share of the width, where the configuration gives heads no size of their own.

        Raises:
            RecipeError: the width cannot be divided.
        """
        if width % heads:
            raise RecipeError(
                "bad model configuration: the width cannot be divided over the heads",
                where=self._where,
                seen=f"width {width}, {heads} heads",
                expected="a multiple of the heads, or head_dim",
            )
        return width // heads

    def activation(self, key: str, default: str) -> Activation:
        """Returns the function between the matrices of a feed-forward."""
        value = self._config.get(key) or default
        if value not in _ACTIVATIONS:
            raise self.unsupported(key, value, ", ".join(_ACTIVATIONS))
        return _ACTIVATIONS[value]

    def labels(self) -> int:
        """Classes of a classification head."""
        named = self._config.get("id2label")
        return len(named) if isinstance(named, Mapping) and named else self.integer("num_labels", 2)

    def label_names(self) -> tuple[str, ...] | None:
        """Returns what those classes are called, in their order; None where ``id2label`` only numbers them."""
        named = self._config.get("id2label")
        if not isinstance(named, Mapping) or not named:
            return None
        names = tuple(named.get(str(number), named.get(number)) for number in range(len(named)))
        if not all(isinstance(name, str) and name != f"LABEL_{number}" for number, name in enumerate(names)):
            return None
        return names

    def rope(self) -> ConfigReader:
        """Returns the section of rotary settings, from the place where transformers 5 keeps it or where 4 did.

        Where both sections are there, ``rope_scaling`` stands for the whole of the other, as in transformers.
        """
        return self.section("rope_parameters" if self._config.get("rope_scaling") in (None, {}) else "rope_scaling")

    def rope_theta(self, default: float = 10000.0) -> float:
        """Returns the rotary base, which stands among the rotary settings or beside them."""
        rope = self.rope()
        alone = rope.number("rope_theta", self.number("rope_theta", default))
        # Gemma 3 has one base for windowed layers and one for the others.
        return rope.section("full_attention").number("rope_theta", alone)

    def refuse(self, key: str, supported: Any) -> None:
        """Go on only where ``key`` is absent or has the one value that the family computes.

        Raises:
            RecipeError: it has another value.
        """
        value = self._config.get(key, supported)
        if value != supported:
            raise self.unsupported(key, value, repr(supported))

    def unsupported(self, key: str, value: Any, supported: str) -> RecipeError:
        """Returns the error for a setting that the family does not compute."""
        return RecipeError(
            "this model needs {key}={value!r}, which is not supported",
            where=self._where,
            expected=supported,
            key=key,
            value=value,
        )

    def _refuse(self, key: str, value: Any, expected: str) -> NoReturn:
        near = did_you_mean(key, [name for name in self._config if name != key]) if value is None else None
        raise RecipeError(
            "bad model configuration: {key}",
            where=self._where,
            seen="nothing" if value is None else repr(value),
            expected=expected,
            fix=near,
            key=key,
        )
