"""What a key means: its documentation, type, default, allowed values and unit, all taken from the model itself."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from trainwright.core.config.shape import Shape, is_list, literals, members, of_model, shape, walk
from trainwright.core.config.tree import Node, dotted, shown
from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension
from trainwright.core.frozen import dataclass
from trainwright.core.registry import REFERENCE, is_reference
from trainwright.core.spelling import did_you_mean

_WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "anything"}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "multiple_of": "a multiple of"}
_UNITS = {"bytes": "bytes", "s": "seconds", "tokens": "tokens", "usd": "US dollars", "w": "watts", "steps": "steps"}


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyExplanation:
    """Everything a model says about one key.

    Attributes:
        key: dotted key; the items of a list stand under ``0``.
        doc: what it means.
        type: in words, with bounds.
        required: it has no default.
        default: JSON value of the default; None where required, and for sections.
        allowed: every allowed value that has a name of its own; a plug-in has none.
        unit: unit of the number, where there is one.
        only_for: kinds of the section that have this key, where not all do.
        members: key and doc of each member of a section.
    """

    key: str
    doc: str
    type: str
    required: bool
    default: Any
    allowed: tuple[Any, ...]
    unit: str | None
    only_for: tuple[str, ...]
    members: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """Returns the explanation as text."""
        lines = [self.key, f"  {self.doc}"] if self.doc else [self.key]
        lines.append(f"  type: {self.type}")
        if self.unit:
            lines.append(f"  unit: {self.unit}")
        if self.required:
            lines.append("  required")
        elif not self.members:
            lines.append(f"  default: {shown(self.default)}")
        if self.only_for:
            lines.append(f"  only for: {', '.join(self.only_for)}")
        width = max((len(name) for name, _ in self.members), default=0)
        return lines + [f"    {name:<{width}}  {doc}".rstrip() for name, doc in self.members]


def explain(model: type[BaseModel], key: str, written: Node | None = None) -> KeyExplanation:
    """Returns what ``model`` says about ``key`` (``train.lr``, ``data.sources.0.kind`` or ``data.sources.kind``).

    Args:
        model: of the whole configuration.
        key: dotted; of a list's items without an index it is the first that has the key.
        written: what a user wrote, whose names say which plug-ins' keys there are; None: nothing.

    Raises:
        RecipeError: no such key.
    """
    here: Shape | None = of_model(model)
    only_for: tuple[str, ...] = ()
    path: list[str] = []
    advice = "for a plug-in's keys add the recipe that names it" if written is None else ""
    for part in key.split("."):
        if here is not None and not here.models and here.item(0) is not None:
            here = here.item(0)
            path.append("0")
            written = _item(here, part, written)
            if part.isdecimal() or part == "*":
                continue
        assert here is not None
        below, named = here.child(part, written), here.by_name is not None
        only_for = names_with(part, here) or _plug_in(here, written)
        if here.by_name is not None and len(only_for) == len(here.by_name.extension.known):
            only_for = ()
        here = here.child(part) if below is None else below
        written = None if written is None else written.child(part)
        path.append(part)
        if here is None:
            fix = "; ".join(filter(None, (_suggest(key, model), advice if named else "")))
            raise RecipeError("no such key", seen=repr(key), fix=fix or None)
    assert here is not None
    return _explanation(".".join(path), here, only_for, written)


def _item(here: Shape | None, part: str, written: Node | None) -> Node | None:
    """Returns the item of a list that a part of a key is about: the one at its index, else the first that has it."""
    items = written.content if written is not None and isinstance(written.content, list) else []
    if part.isdecimal():
        return items[int(part)] if int(part) < len(items) else None
    having = (item for item in items if here is not None and here.by_name and here.child(part, item) is not None)
    return next(having, items[0] if items else None)


def _plug_in(here: Shape, written: Node | None) -> tuple[str, ...]:
    """Returns the name of the plug-in that a section has, where it has one."""
    if here.by_name is None or written is None:
        return ()
    value = written.plain()
    name = here.by_name.named(value) if isinstance(value, dict) else value
    return (name,) if isinstance(name, str) and is_reference(name) else ()


def keys(model: type[BaseModel]) -> tuple[KeyExplanation, ...]:
    """Returns every key of ``model``, in order, the items of lists under ``0``."""
    return tuple(_explanation(dotted(path), here, (), None) for path, here in walk(of_model(model)))


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a file that ``model`` accepts, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(mode="validation")}


def type_text(here: Shape | None) -> str:
    """Returns a shape in words: ``whole number > 0 or null``."""
    if here is None:
        return "anything"
    extension = _extension(here)
    if extension is not None:
        return f"{extension.expected} or null" if here.nullable else extension.expected
    bounds = " and ".join(bound for bound in map(_bound, here.constraints) if bound)
    # A bound is about the numbers and lists, not about the words that may stand for them.
    words = [
        _option_text(option) + (f" {bounds}" if bounds and not literals(option) else "") for option in here.options
    ]
    if here.by_name is not None:
        known = ", ".join(map(repr, here.by_name.extension.known))
        words = [f"mapping, its {here.by_name.tag} one of {known}, {REFERENCE}"]
    text = " or ".join(dict.fromkeys(words))
    return f"{text} or null" if here.nullable else text


def names_with(key: str, here: Shape) -> tuple[str, ...]:
    """Returns those of our names in a section that have a key of it."""
    if here.by_name is None:
        return ()
    return tuple(name for name in here.by_name.extension.known if key in here.by_name.section(name).model_fields)


def _extension(here: Shape) -> Extension | None:
    return next((item for item in here.constraints if isinstance(item, Extension)), None)


def number_text(bound: Any) -> str:
    """Returns a bound without needless digits: ``0``, not ``0.0``."""
    return str(int(bound)) if isinstance(bound, float) and bound.is_integer() else str(bound)


def _option_text(option: Any) -> str:
    if option in _WORDS:
        return _WORDS[option]
    if literals(option):
        return " or ".join(shown(value) for value in literals(option))
    if is_list(option):
        arguments = [argument for argument in get_args(option) if argument is not ...]
        if get_origin(option) is tuple and get_args(option)[-1:] != (...,):
            return f"list of {len(arguments)}: {', '.join(type_text(shape(argument)) for argument in arguments)}"
        return f"list of {type_text(shape(arguments[0]))}" if arguments else "list"
    if (isinstance(option, type) and issubclass(option, BaseModel)) or (get_origin(option) or option) is dict:
        return "mapping"
    return getattr(option, "__name__", str(option))


def _bound(constraint: Any) -> str | None:
    for name, sign in _BOUNDS.items():
        if getattr(constraint, name, None) is not None:
            return f"{sign} {number_text(getattr(constraint, name))}"
    return f"of length >= {constraint.min_length}" if getattr(constraint, "min_length", None) else None


def _explanation(key: str, here: Shape, only_for: tuple[str, ...], written: Node | None) -> KeyExplanation:
    field = here.field
    required = field is not None and field.is_required()
    inside = {name: here.child(name, written) for model in here.sections(written) for name in members(model)}
    default = None
    if field is not None and not required and not inside:
        default = to_jsonable_python(field.get_default(call_default_factory=True, validated_data={}))
    allowed = tuple(value for option in here.options for value in literals(option))
    booleans = (True, False) if bool in here.options else ()
    extension = _extension(here)
    known = () if extension is None else tuple(extension.known)
    return KeyExplanation(
        key=key,
        doc=_doc(here),
        type=type_text(here),
        required=required,
        default=default,
        allowed=booleans + allowed + known,
        unit=_unit(key, field),
        only_for=only_for,
        members=tuple((name, _doc(inner) or type_text(inner)) for name, inner in inside.items()),
    )


def _doc(here: Shape | None) -> str:
    field = here.field if here is not None else None
    if field is not None and field.description:
        return field.description
    return (here.models[0].__doc__ or "").strip() if here is not None and len(here.models) == 1 else ""


def _unit(key: str, field: FieldInfo | None) -> str | None:
    """``json_schema_extra={"unit": ...}``, else the suffix that names carry (``_bytes``, ``_s``, ``_tokens``)."""
    extra = field.json_schema_extra if field is not None else None
    if isinstance(extra, dict) and "unit" in extra:
        return str(extra["unit"])
    return _UNITS.get(key.rpartition("_")[2]) if "_" in key.rpartition(".")[2] else None


def _suggest(key: str, model: type[BaseModel]) -> str | None:
    known = [dotted(path) for path, _ in walk(of_model(model))]
    leaf = key.rpartition(".")[2]
    elsewhere = [other for other in known if other.rpartition(".")[2] == leaf]
    return f"did you mean {elsewhere[0]!r}?" if elsewhere else did_you_mean(key, known)
