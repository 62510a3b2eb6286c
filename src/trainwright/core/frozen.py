"""``dataclass`` for frozen records, made in a third of the time: a plan defines more than a hundred before it answers.

The standard library's decorator compiles six methods of each class from text. Here one is compiled, ``__init__``; the
others are the same functions for all classes. What a class has and does stays the same: fields, defaults and their
order, equality, hash, text, copies, pickles and errors. ``field(init=False)`` and ``InitVar`` are not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers know this one
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, kw_only: bool = False, slots: bool = False, eq: bool = True):
        """Returns the decorator; ``frozen`` is always said, because readers and type checkers look for it."""
        assert frozen
        return lambda cls: _made(cls, kw_only=kw_only, slots=slots, eq=eq)


__all__ = ["dataclass"]

_MADE = object()
"""Stands for a default that a function makes anew for each record."""


def _made(cls: type, *, kw_only: bool, slots: bool, eq: bool) -> Any:
    """Returns the dataclass; its fields are found, and its slots made, by the standard library."""
    written = {name for name, value in cls.__dict__.items() if value is not None}  # None: ``__hash__`` by ``__eq__``
    derived = any(map(dataclasses.is_dataclass, cls.__bases__))
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, the standard library would make one of the signature
    options = {"frozen": derived, "kw_only": kw_only, "slots": slots}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    made.__dataclass_params__.frozen = True  # classes of either decorator may derive from it
    methods: dict[str, Any] = {"__init__": _init(made), "__repr__": _text}
    if not derived:
        methods |= {"__setattr__": _change, "__delattr__": _change}
    if slots:
        methods["__reduce__"] = _reduced
    if eq:
        methods |= _comparison([each.name for each in fields(made) if each.compare])
    for name in methods.keys() - written:
        setattr(made, name, methods[name])
    return made


def _init(cls: Any) -> Callable[..., None]:
    """Returns the class's ``__init__``, compiled: nothing else is as fast where records are made by the thousand."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
    parameters, by_name, lines = ["self"], ["*"], ["pass"]
    for each in fields(cls):
        name, default, value = each.name, "", each.name
        if each.default is not MISSING:
            names[f"_default_{name}"], default = each.default, f"=_default_{name}"
        elif each.default_factory is not MISSING:
            names[f"_make_{name}"], default = each.default_factory, "=_MADE"
            value = f"_make_{name}() if {name} is _MADE else {name}"
        (by_name if each.kw_only else parameters).append(name + default)
        lines.append(f"_set(self, {name!r}, {value})")
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters += by_name if len(by_name) > 1 else []
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), names)  # noqa: S102
    init: Callable[..., None] = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {each.name: each.type for each in fields(cls)} | {"return": None}
    return init


def _comparison(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Returns equality and hash over the fields of these names."""
    one_or_none = lambda self: tuple(getattr(self, name) for name in names)  # noqa: E731  # no tuple of attrgetter's
    values: Callable[[Any], object] = attrgetter(*names) if len(names) > 1 else one_or_none
    return {
        "__eq__": lambda self, other: values(self) == values(other) if type(self) is type(other) else NotImplemented,
        "__hash__": lambda self: hash(values(self)),
    }


def _text(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _change(self: Any, name: str, *value: object) -> None:
    """Raises FrozenInstanceError; of a plain class below a dataclass for the fields alone."""
    if "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
    if value:
        object.__setattr__(self, name, *value)
    else:
        object.__delattr__(self, name)


def _reduced(self: Any) -> tuple[Callable[[], Any], tuple[()]]:
    made: Callable[..., Any] = type(self)
    return partial(made, **{each.name: getattr(self, each.name) for each in fields(self)}), ()
