"""Sections whose keys depend on a name: some names of ours have keys of their own, and a plug-in declares its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, cast

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension, declared_keys
from trainwright.core.frozen import dataclass
from trainwright.core.plug_in import described
from trainwright.core.registry import is_reference, load

SCHEMA = "trainwright.core.config.by_name_schema:json_schema"


@dataclass(frozen=True, slots=True, eq=False)
class ByName:
    """Stands in the annotation of a section in which one key names code, which decides the other keys.

    With ``Annotated[ScheduleSection, ByName(SCHEDULE, ScheduleSection, {"wsd": WsdSection})]`` the keys beside
    ``name: wsd`` are those of ``WsdSection``, those beside ``name: package.module:name`` the ones that the plug-in
    declares, and those beside any other name the ones of ``ScheduleSection``. A base without any other key lets a name
    stand alone.

    Args:
        extension: what may be named.
        base: the class that all others derive from; only the name may be required in it.
        sections: the classes of ours that have keys of their own, by name; as ``package.module:Class``, one that is
            imported where it is named.
        tag: the key that names.
    """

    extension: Extension
    base: type[BaseModel]
    sections: Mapping[str, type[BaseModel] | str] = field(default_factory=dict)
    tag: str = "name"

    @property
    def classes(self) -> tuple[type[BaseModel], ...]:
        """Returns the base and the classes of ours."""
        return tuple(dict.fromkeys((self.base, *map(self.section, self.sections))))

    def section(self, name: object) -> type[BaseModel]:
        """Returns the class of the keys beside a name.

        Raises:
            RecipeError: a plug-in cannot be imported, or is none, or declares keys that do not derive from the base.
        """
        if not isinstance(name, str) or not is_reference(name):
            ours = self.sections.get(str(name), self.base)
            loaded: Any = load(ours, kind=self.extension.kind) if isinstance(ours, str) else ours
            return cast("type[BaseModel]", loaded)
        keys = declared_keys(self.extension.load(name)) or self.base
        if isinstance(keys, type) and issubclass(keys, self.base):
            return keys
        raise RecipeError(
            "the keys of this {kind} do not fit",
            seen=f"{name}, whose Section is {described(keys)}",
            expected=f"a class that derives from {self.base.__module__}.{self.base.__qualname__}",
            kind=self.extension.kind,
        )

    def named(self, value: Mapping[str, object]) -> object:
        """Returns the name in a section, or the default; pydantic's "undefined" where a name is required."""
        return value.get(self.tag, self.base.model_fields[self.tag].default)

    def _validate(self, value: Any) -> BaseModel:
        if isinstance(value, self.base):
            value = value.model_dump(include={*value.model_fields_set, self.tag})  # the name decides, not the class
        if isinstance(value, str) and len(self.base.model_fields) == 1:
            return self.section(self.extension.check(value)).model_validate({self.tag: value})
        if not isinstance(value, Mapping):
            return self.base.model_validate(value)
        name = self.named(value)
        if not self.extension.knows(name):
            # Nobody can tell which keys stand beside a name that is unknown or missing.
            return self.base.model_validate({key: item for key, item in value.items() if key == self.tag})
        try:
            section = self.section(name)
        except RecipeError as error:
            raise error.at(self.tag) from error
        # The errors of the section's own validation keep their places below this key.
        return section.model_validate(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        as_it_is = core_schema.simple_ser_schema("any")
        return core_schema.no_info_plain_validator_function(self._validate, serialization=as_it_is)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Returns what ``by_name_schema`` makes, which training does without."""
        branches: JsonSchemaValue = load(SCHEMA, kind="schema")(self, handler)
        return branches
