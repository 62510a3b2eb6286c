"""Fields of a question as a user gives them, texts or numbers: read and checked, for Python and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from reprlib import repr as shown
from typing import Any, get_args

from trainwright.core.errors import RecipeError, about
from trainwright.core.money import parse_usd
from trainwright.core.spelling import unknown
from trainwright.core.units import parse_count, parse_seconds
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.device import PriceKind
from trainwright.spec.workload import Method, MomentDtype, OptimizerName, Precision, Recompute, States


def _integer(value: Any) -> int:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if is_integer else parse_count(value)


def count(value: Any) -> int:
    """Returns a number of at least one from ``15T`` or 4096.

    Raises:
        RecipeError: no whole number, or below one.
    """
    number = _integer(value)
    if number < 1:
        raise RecipeError("must be at least 1", seen=str(value))
    return number


def one_of(value: Any, known: tuple[str, ...]) -> str:
    """Returns a known word; dashes and underscores are one.

    Raises:
        RecipeError: it is not known; names a near one.
    """
    slug = str(value).replace("-", "_")
    if slug not in known:
        raise RecipeError("unknown value", **unknown(str(value), known))
    return slug


def text(value: Any) -> str:
    """Returns ``value``, where it is text; raises RecipeError for anything else."""
    if not isinstance(value, str):
        raise RecipeError("must be text", seen=shown(value))
    return value


def names(value: Any) -> tuple[str, ...]:
    """Returns the names of ``aws,gcp`` or of a list.

    Raises:
        RecipeError: it has none, or something else in it.
    """
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else (value,)
    found = tuple(name for name in (text(each).strip() for each in given) if name)
    if not found:
        raise RecipeError("no name in this list", seen=shown(value), expected="names, such as a,b")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RecipeError("must be a number", seen=shown(value))
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RecipeError("must be True or False", seen=shown(value))
    return value


def _references(value: Any) -> tuple[Reference, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, Reference) for each in value):
        raise RecipeError("must be measured runs", seen=shown(value), expected="a list of Reference")
    return tuple(value)


def _above_zero(value: Any, parse: Callable[[Any], float]) -> float:
    number = parse(value)
    if number == 0:
        raise RecipeError("must be above zero", seen=repr(value))
    return number


Readers = dict[str, Callable[[Any], Any]]
OF_RUN: Readers = {
    **dict.fromkeys(("tokens", "batch_tokens", "sequence_tokens"), count),
    "precision": partial(one_of, known=get_args(Precision)),
    "optimizer": partial(one_of, known=get_args(OptimizerName)),
    "states": partial(one_of, known=get_args(States)),
    "moments": partial(one_of, known=get_args(MomentDtype)),
    "method": partial(one_of, known=get_args(Method)),
    "fused_loss": _flag,
    **dict.fromkeys(("rank", "further_layers"), _integer),
    "stack": text,
    "expert_imbalance": _number,
}
"""What a user may set of a run wherever it is: fields of a ``Question``, and what reads them."""
QUESTION: Readers = {
    **OF_RUN,
    "recompute": partial(one_of, known=get_args(Recompute)),
    "layout": parse_layout,
    "rails": _integer,
    **dict.fromkeys(("scale_up", "scale_out"), text),
    "clouds": names,
    "price_kind": partial(one_of, known=get_args(PriceKind)),
    "price": _number,
    "references": _references,
}
"""With what a user may set of a run on one cluster."""
SEARCH: Readers = {
    "budget_usd": partial(_above_zero, parse=parse_usd),
    "deadline_s": partial(_above_zero, parse=parse_seconds),
    "devices": names,
    "clouds": names,
}
"""What bounds a search for a cluster."""


def read_fields(given: Mapping[str, Any], readers: Readers = QUESTION) -> dict[str, Any]:
    """Returns the values of fields by name; one that is None is left out.

    Raises:
        RecipeError: an unknown field, or a value that cannot be read or is unknown.
    """
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in readers:
            raise RecipeError("unknown option", **unknown(name, readers))
        if value is not None:
            with about(name):
                fields[name] = readers[name](value)
    return fields
