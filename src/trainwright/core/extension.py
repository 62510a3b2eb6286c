"""``Extension``: a recipe's key that takes a known name or a plug-in. Plans load the registry without pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.plug_in import Called, InstanceOf, described
from trainwright.core.registry import REFERENCE, is_reference, look_up

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core.core_schema import CoreSchema

T = TypeVar("T")

REFERENCE_SCHEMA = {"type": "string", "pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"}
_KEYS = "Section"


def with_keys(section: type) -> Callable[[T], T]:
    """Declares the keys of a plug-in that is a function: ``@with_keys(LionSection)``; a class has ``Section = ...``."""

    def declare(plug_in: T) -> T:
        setattr(plug_in, _KEYS, section)
        return plug_in

    return declare


def declared_keys(plug_in: object) -> Any:
    """Returns the class of the keys that a plug-in declares; None where it has none of its own."""
    return getattr(plug_in, _KEYS, None)


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """What a recipe's key accepts that names code: a known name, or ``package.module:name``.

    It stands in the annotation of the key, ``Annotated[str, Extension("optimizer", OPTIMIZERS)]``. The key itself
    is checked without importing anything; ``load`` imports.

    Args:
        kind: what is named ("optimizer", "exporter", ...), for error lines.
        known: our own entries, each an object or its ``package.module:name``.
        requirement: what a plug-in has to be.
    """

    kind: str
    known: Mapping[str, Any]
    requirement: Called | InstanceOf | None = None

    @property
    def expected(self) -> str:
        """Returns what may stand there, in words."""
        return f"{', '.join(repr(name) for name in self.known)} or '{REFERENCE}'"

    def load(self, name: str) -> Any:
        """Returns the object that a name stands for.

        Raises:
            RecipeError: the name is unknown, its module or attribute does not exist, or what is there is of another
                kind.
        """
        value = look_up(name, self.known, kind=self.kind)
        required = self.requirement
        if isinstance(required, Called) and declared_keys(value) and "section" not in required.arguments:
            required = replace(required, keywords=(*required.keywords, "section"))
        if name not in self.known and required is not None and not required.holds(value):
            seen = f"{name}, {described(value)}"
            raise RecipeError("this is no {kind}", seen=seen, expected=required.expected, kind=self.kind)
        return value

    def bound(self, section: Any, base: type) -> Any:
        """Returns what a section names; where its keys are not the base's alone, it is called with ``section=``."""
        value = self.load(section.name)
        return value if type(section) is base else partial(value, section=section)

    def knows(self, name: object) -> bool:
        """Returns whether a name is one of ours or has the form of a plug-in's."""
        return isinstance(name, str) and (name in self.known or is_reference(name))

    def problems(self, name: str, *, where: str) -> Iterator[RecipeError]:
        """Yields what is wrong with a plug-in, under the key that names it; what we know ourselves is not loaded."""
        if name in self.known:
            return
        try:
            self.load(name)
        except RecipeError as error:
            yield error.at(where)

    def check(self, name: str) -> str:
        """Returns the name where it can stand for something; the error reads like that of a ``Literal``."""
        if self.knows(name):
            return name
        from pydantic_core import PydanticCustomError

        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": self.expected})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(self.known)}, REFERENCE_SCHEMA]}
