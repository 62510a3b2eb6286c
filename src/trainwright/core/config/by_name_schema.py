"""The JSON schema of a section whose keys depend on a name, for editors and for the reference of the recipe."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from trainwright.core.config.by_name import ByName
from trainwright.core.extension import REFERENCE_SCHEMA


def json_schema(by_name: ByName, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Returns one branch for each name of ours, one for plug-ins, whose keys are not known, and the names alone."""
    tag, base, known = by_name.tag, by_name.base, by_name.extension.known
    ours = handler(core_schema.union_schema([_apart(section) for section in by_name.classes]))
    sections = dict(zip(by_name.classes, ours.get("anyOf", [ours]), strict=True))
    default = base.model_fields[tag].default
    branches = [
        sections[by_name.section(name)] | {"properties": {tag: {"const": name}}, "required": [tag][name == default :]}
        for name in known
    ]
    branches.append({"type": "object", "properties": {tag: REFERENCE_SCHEMA}, "required": [tag]})
    if len(base.model_fields) == 1:
        fields = {name: by_name.section(name).model_fields.items() for name in known}
        needed = {name: {key for key, item in items if item.is_required()} for name, items in fields.items()}
        branches += [{"enum": [name for name, keys in needed.items() if keys <= {tag}]}, REFERENCE_SCHEMA]
    return {"anyOf": branches}


def _apart(section: type[BaseModel]) -> core_schema.CoreSchema:
    """Returns the schema of a section with a name, by which the whole refers to it."""
    schema: Any = section.__pydantic_core_schema__
    name = {"ref": f"{section.__module__}.{section.__qualname__}:{id(section)}"}
    named = {**schema, "schema": schema["schema"] | name} if schema["type"] == "definitions" else schema | name
    return cast("core_schema.CoreSchema", named)
