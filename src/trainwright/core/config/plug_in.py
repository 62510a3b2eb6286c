"""Tagged unions that are open: ``kind: package.module:Class`` names a section from outside the project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load


@dataclass(frozen=True, slots=True)
class PlugInSection:
    """Stands behind the discriminator in a union's annotation; plug-ins' keys are checked by their own section.

    ``Annotated[A | B, Field(discriminator="kind"), PlugInSection("kind", "source", Base)]`` takes A and B by their
    tags, and, for a tag with a colon, the class of the attribute ``Section`` of what the tag names.

    Args:
        tag: the key that tells the members apart.
        what: what is plugged in ("source"), for error lines.
        base: what the section's class must derive from.
    """

    tag: str
    what: str
    base: type[BaseModel]

    def section(self, reference: str) -> type[BaseModel]:
        """Imports a plug-in and returns the class of its section.

        Raises:
            RecipeError: it cannot be imported, or has no such class.
        """
        try:
            plug_in = load(reference, kind=self.what)
        except RecipeError as error:
            raise error.at(self.tag) from error
        section = getattr(plug_in, "Section", None)
        if isinstance(section, type) and issubclass(section, self.base):
            return section
        raise RecipeError(
            "this is no {what}",
            where=self.tag,
            seen=repr(reference),
            expected=f"a class whose attribute Section derives from {self.base.__name__}",
            what=self.what,
        )

    def reference(self, value: object) -> str | None:
        """Returns the tag of a mapping where it names a plug-in."""
        tag = value.get(self.tag) if isinstance(value, Mapping) else None
        return tag if isinstance(tag, str) and ":" in tag else None

    def _validate(self, value: Any, members: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, self.base):
            return value
        reference = self.reference(value)
        # The errors of the section's own validation keep their places below this key.
        return members(value) if reference is None else self.section(reference).model_validate(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        as_it_is = core_schema.wrap_serializer_function_ser_schema(
            lambda value, serialize: serialize(value), schema=core_schema.any_schema()
        )
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source), serialization=as_it_is)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        plug_in = {
            "type": "object",
            "properties": {self.tag: {"type": "string", "pattern": ":"}},
            "required": [self.tag],
        }
        return {"anyOf": [handler(schema), plug_in]}
