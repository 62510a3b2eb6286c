"""The base of every recipe section: frozen, and no unknown keys; and the quantities that several of them share."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_bytes, parse_count, parse_duration, parse_seconds

Positive = Annotated[int, Field(gt=0)]
"""At least one of something countable."""
Workers = Annotated[int, Field(gt=0, le=1024)]
"""Threads or processes: no machine has more processors, and many more than it has end in a crash."""


def _quantity(parse: Any) -> BeforeValidator:
    def read(value: Any) -> Any:
        try:
            return parse(value)
        except RecipeError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


Count = Annotated[int, _quantity(parse_count), Field(gt=0)]
Bytes = Annotated[int, _quantity(parse_bytes), Field(gt=0)]
Seconds = Annotated[float, _quantity(parse_seconds), Field(ge=0)]
DurationText = Annotated[str, _quantity(lambda value: (parse_duration(value), str(value))[1])]
"""Kept as the user wrote it (``25M tok``, ``20 tok/param``); ``parse_duration`` gives the value."""


class Section(BaseModel):
    """A mapping in a recipe file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keep_booleans_from_numbers(cls, data: Any) -> Any:
        """Gives a field of numbers a boolean as text, which it refuses; pydantic would take ``true`` for 1."""
        if not isinstance(data, dict):
            return data
        numbers = {name for name, field in cls.model_fields.items() if _holds_numbers(field.annotation)}
        return {key: _spelt(value) if key in numbers else value for key, value in data.items()}


def _holds_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(_holds_numbers(part) for part in get_args(annotation))


def _spelt(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_spelt(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else value


class NamedSection(Section):
    """The name of something, and the keys that it has beside it; without any it is written as its name alone."""

    name: str

    @model_serializer(mode="wrap")
    def _name_alone(self, write: SerializerFunctionWrapHandler) -> Any:
        written = write(self)
        return written["name"] if written.keys() == {"name"} else written
