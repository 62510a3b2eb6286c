"""Fields of a question as a user writes them, texts or numbers: read and checked, for Python and the command line.

Each is an option of the command too (``cli/options.py`` has its name), so that both ask the same; but ``batch_tokens``
are tokens here, where ``--batch`` counts the images of a model that sees them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from numbers import Integral
from reprlib import repr as shown
from typing import Any, get_args

from trainwright.core.errors import RecipeError, about
from trainwright.core.money import parse_usd
from trainwright.core.spelling import unknown
from trainwright.core.units import YEAR_S, at_least_one, parse_count, parse_seconds, split
from trainwright.hardware.catalogue.devices import device, normalised
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.catalogue.printed_names import instance, instance_devices, is_board, machine_devices
from trainwright.hardware.prices.clouds import cloud
from trainwright.hardware.prices.price_list import region
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Packing, Task
from trainwright.planner.plan.sizes import MOST_SEQUENCE_TOKENS, MOST_TOKENS
from trainwright.planner.rates.learnt import Reference
from trainwright.planner.search.offers import read_pool
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.workload import Method, MomentDtype, OptimizerName, Precision, Recompute, States

MOST_EPOCHS, MOST_GIB, MOST_USD_AN_HOUR = 10**6, 10**9, 10**5
MOST_YEARS, MOST_RAILS, MOST_FLOPS_PER_S = 1000, 64, 1e18
"""Beyond these a question is a slip: a thousand times the passes that anybody makes over a few examples, an exbibyte of
data, more for an hour than a device costs, a millennium, more ports and a faster device than there are."""


def _integer(value: Any) -> int:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if is_integer else parse_count(value)


def count(value: Any) -> int:
    """Returns a number of at least one from ``15T`` or 4096.

    Raises:
        RecipeError: no whole number, or below one.
    """
    return at_least_one(_integer(value))


def _up_to(value: Any, most: int) -> int:
    if (number := count(value)) > most:
        raise RecipeError("more than any run has", seen=f"{number:.3g}", expected=f"at most {most:.0e}")
    return number


def one_of(value: Any, known: tuple[str, ...]) -> str:
    """Returns a known word; dashes and underscores are one, and so are capitals and small letters.

    Raises:
        RecipeError: it is not known; names a near one.
    """
    slug = str(value).replace("-", "_").lower()
    for word in known:
        if word.replace("-", "_") == slug:
            return word
    raise RecipeError("unknown value", **unknown(str(value), known))


def text(value: Any) -> str:
    """Returns ``value``, where it is text; raises RecipeError for anything else."""
    if not isinstance(value, str):
        raise RecipeError("must be text", seen=shown(value))
    return value


def names(value: Any) -> tuple[str, ...]:
    """Returns the names of ``aws,gcp`` or of a list.

    Raises:
        RecipeError: it has none, an empty one, one that cannot be printed, or something else in it.
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else (value,)
    stripped = tuple(text(each).strip() for each in parts)
    if not any(stripped):
        raise RecipeError("no name in this list", seen=shown(value), expected="names, such as a,b")
    if not all(stripped):
        raise RecipeError("an empty name in this list", seen=shown(value), expected="names, such as a,b")
    if not all(map(str.isprintable, stripped)):
        raise RecipeError("a name that cannot be printed", seen=shown(value), expected="names of one line")
    return stripped


def _number(value: Any) -> float:
    with suppress(TypeError, ValueError):
        number = math.nan if isinstance(value, bool) else float(value)
        if not math.isnan(number):
            return number
    raise RecipeError("must be a number", seen=shown(value))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RecipeError("must be True or False", seen=shown(value))
    return value


def _references(value: Any) -> tuple[Reference, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, Reference) for each in value):
        raise RecipeError("must be measured runs", seen=shown(value), expected="a list of Reference")
    return tuple(value)


def _above_zero(value: Any, parse: Callable[[Any], float], most: float = math.inf) -> float:
    number = parse(value)
    if not number > 0:
        raise RecipeError("must be above zero", seen=repr(value))
    if number > most or number == math.inf:
        expected = "a number that has an end" if most == math.inf else f"at most {most:,.0f}"
        raise RecipeError("more than any run has", seen=repr(value), expected=expected)
    return number


def _span(value: Any) -> float:
    """Returns seconds; a text needs its unit, for whoever writes 14 means days."""
    seconds = _above_zero(value, parse_seconds, most=MOST_YEARS * YEAR_S)
    if isinstance(value, str) and not split(value, expected="a time")[1]:
        raise RecipeError("a time needs its unit", seen=repr(value), expected="for example 14d or 36h")
    return seconds


def _flops_per_s(value: Any) -> float:
    """Returns FLOP/s from ``28TFLOP/s``, ``0.3 PFLOPS``, or a number; a text needs its unit, for 28 means TFLOP/s."""
    expected = "a rate such as 28TFLOP/s"
    number, unit = split(value, expected=expected)
    scale = re.fullmatch(r"([GTPE]?)FLOPS?(?:/S)?", unit.upper()) if unit else None
    if not number or (scale is None and (unit or isinstance(value, str))):
        raise RecipeError("no rate of a device", seen=repr(value), expected=expected)
    rate = float(number) * 1000.0 ** (0 if scale is None else " KMGTPE".index(scale[1] or " "))
    if rate > MOST_FLOPS_PER_S:
        raise RecipeError("more than any device reaches", seen=repr(value), expected=f"{expected}, at most 1EFLOP/s")
    return rate


def _rails(value: Any) -> int:
    """Returns the network ports of a machine."""
    rails = _integer(value)
    if rails > MOST_RAILS:
        raise RecipeError("more ports than any machine has", seen=shown(value), expected=f"at most {MOST_RAILS}")
    return rails


def _price_kinds(value: Any) -> tuple[str, ...]:
    return tuple(one_of(name, get_args(PriceKind)) for name in names(value))


def _devices(value: Any) -> tuple[str, ...]:
    return tuple(device(name).name for name in names(value))


def _clouds(value: Any) -> tuple[str, ...]:
    return tuple(cloud(name).slug for name in names(value))


def regions(value: Any) -> tuple[str, ...]:
    """Returns the regions of ``eu,us-east-1`` or of a list.

    Raises:
        RecipeError: as ``names``; or no price's region lies there.
    """
    return tuple(region(name) for name in names(value))


def _usd_by_device(value: Any) -> dict[str, float]:
    """Returns the prices of ``h100-sxm=2.10,l4=0.7`` or of a mapping, by device."""
    if isinstance(value, (int, float)):
        value = str(value)
    pairs = value.items() if isinstance(value, Mapping) else [each.partition("=")[::2] for each in names(value)]
    prices = {}
    for name, usd in pairs:
        if usd == "":
            raise RecipeError("a price of which device?", seen=shown(value), expected="for example h100-sxm=2.10")
        found = device(text(name).strip()).name
        if found in prices:
            raise RecipeError("two prices of one device", seen=shown(value), expected=f"one of {found}")
        prices[found] = _above_zero(usd, parse=_usd_an_hour) / devices_priced(text(name).strip())
    return prices


def devices_priced(name: str) -> int:
    """Returns how many devices a price is for: one, or those of an instance type or a machine.

    Raises:
        RecipeError: a type or a board whose devices nobody has listed.
    """
    slug, full = normalised(name), device(name)
    rented = instance(slug) is not None
    count = instance_devices(slug) if rented else machine_devices(slug, node_size(full.name))
    if count is None and (rented or is_board(name)):
        fix = f"write what one device costs: {full.name}=USD"
        raise RecipeError("a price of how many devices?", seen=name, expected="a device", fix=fix)
    return count or 1


def _price(value: Any) -> float | dict[str, float]:
    """Returns dollars, or dollars by device of ``h100-sxm=2.10``."""
    by_device = isinstance(value, Mapping) or (isinstance(value, str) and "=" in value)
    return _usd_by_device(value) if by_device else _usd_an_hour(value)


def _usd_an_hour(value: Any) -> float:
    try:
        usd = parse_usd(value)
    except RecipeError as error:
        expected = "dollars of a device and hour, such as 2.50, or h100-sxm=2.10"
        raise RecipeError("no price", seen=repr(value), expected=expected) from error
    return _of_an_hour(usd, value)


def _of_an_hour(usd: float, value: Any) -> float:
    if usd > MOST_USD_AN_HOUR:
        most = f"at most {MOST_USD_AN_HOUR:,} dollars"
        raise RecipeError("more than an hour of anything costs", seen=repr(value), expected=most)
    return usd


def _pool(value: Any) -> tuple[ClusterSpec, ...]:
    return read_pool(text(value))


def _optimizer(value: Any) -> str:
    """Returns an optimizer; of Hugging Face's ``paged_adamw_8bit`` the error says how it is written here."""
    known = get_args(OptimizerName)
    try:
        return one_of(value, known)
    except RecipeError as error:
        name = str(value).lower()
        if "adam" not in name or "adamax" in name:
            raise
        more = [("8bit", "`moments` int8"), ("8-bit", "`moments` int8"), ("paged", "`paged_moments`")]
        said = [f", with {how}" for word, how in more if word in name]
        seen, expected = repr(value), f"one of {', '.join(known)}"
        raise RecipeError("unknown value", seen=seen, expected=expected, fix=f"write adamw{''.join(said)}") from error


Readers = dict[str, Callable[[Any], Any]]
OF_RUN: Readers = {
    **dict.fromkeys(("tokens", "batch_tokens"), partial(_up_to, most=MOST_TOKENS)),
    "sequence_tokens": partial(_up_to, most=MOST_SEQUENCE_TOKENS),
    "rank": count,
    "targets": names,
    "precision": partial(one_of, known=get_args(Precision)),
    "optimizer": _optimizer,
    "states": partial(one_of, known=get_args(States)),
    "moments": partial(one_of, known=get_args(MomentDtype)),
    "method": partial(one_of, known=get_args(Method)),
    "task": partial(one_of, known=get_args(Task)),
    "examples": partial(_up_to, most=MOST_TOKENS),
    "example_tokens": partial(_up_to, most=MOST_SEQUENCE_TOKENS),
    "epochs": partial(_above_zero, parse=_number, most=MOST_EPOCHS),
    "data_gib": partial(_above_zero, parse=_number, most=MOST_GIB),
    "packing": partial(one_of, known=get_args(Packing)),
    "fused_loss": _flag,
    **dict.fromkeys(("update_in_backward", "paged_moments", "activation_offload"), _flag),
    "further_layers": _integer,
    "stack": text,
    "expert_imbalance": _number,
    "recompute": partial(one_of, known=get_args(Recompute)),
    "layout": parse_layout,
    "flops_per_s": _flops_per_s,
}
"""What a user may set of a run wherever it is: fields of a ``Question``, and what reads them."""
QUESTION: Readers = {
    **OF_RUN,
    "rails": _rails,
    **dict.fromkeys(("scale_up", "scale_out"), text),
    "clouds": names,
    "regions": regions,
    "price_kind": partial(one_of, known=get_args(PriceKind)),
    "price": _price,
    "references": _references,
}
"""With what a user may set of a run on one cluster."""
SEARCH: Readers = {
    "budget_usd": partial(_above_zero, parse=parse_usd),
    "deadline_s": _span,
    "devices": _devices,
    "clouds": _clouds,
    "regions": regions,
    "price_kinds": _price_kinds,
    "most_devices": count,
    "have": _pool,
    "have_usd_per_device_hour": lambda value: _of_an_hour(parse_usd(value), value),
    "have_bought_usd": partial(_above_zero, parse=parse_usd),
    "have_years": partial(_above_zero, parse=_number),
    "usd_per_kwh": lambda value: _of_an_hour(parse_usd(value), value),
    "price": _usd_by_device,
}
"""What bounds a search for a cluster, and what is there already."""


OF_OWN = ("have_usd_per_device_hour", "have_bought_usd", "have_years", "usd_per_kwh")
"""Of them, what says what the devices that are there cost."""


def read_fields(value_by_field: Mapping[str, Any], readers: Readers = QUESTION) -> dict[str, Any]:
    """Returns the values of fields by name; one that is None is left out.

    Raises:
        RecipeError: an unknown field, a value that cannot be read or is unknown, or two values that contradict.
    """
    fields: dict[str, Any] = {}
    for name, value in value_by_field.items():
        if name not in readers:
            raise RecipeError("unknown option", **unknown(name, readers))
        if value is not None:
            with about(name):
                fields[name] = readers[name](value)
    _refuse_contradictions(fields)
    return fields


def _refuse_contradictions(fields: Mapping[str, Any]) -> None:
    layout = fields.get("layout", {})
    recompute = fields.get("recompute", layout.get("recompute"))
    if layout.get("recompute", recompute) != recompute:
        seen = f"{recompute}, and {layout['recompute']} in the layout"
        raise RecipeError("two answers to one question", field="recompute", seen=seen, expected="one of them")
    of_adapters = next((name for name in ("rank", "targets") if name in fields), None)
    if of_adapters is not None and fields.get("method", "full") == "full":
        fix = "set `method` to lora or qlora"
        raise RecipeError("all weights are trained, and no adapters", field=of_adapters, fix=fix)
    for name in OF_OWN:
        if name in fields and "have" not in fields:
            raise RecipeError("a price of devices that are not named", field=name, fix="set `have`")
    if "have_usd_per_device_hour" in fields and "have_bought_usd" in fields:
        name, expected = "have_usd_per_device_hour", "this or `have_bought_usd`, not both"
        raise RecipeError("two answers to one question", field=name, expected=expected)
    if "have_years" in fields and "have_bought_usd" not in fields:
        raise RecipeError("years of which price?", field="have_years", fix="set `have_bought_usd`")
    sizes = ("examples", "epochs") if fields.get("packing") == "off" else ("examples", "epochs", "example_tokens")
    sized = next((name for name in sizes if name in fields), None)
    if sized is not None and "tokens" in fields:
        expected = "this or `tokens`, not both"
        raise RecipeError("two answers to one question", field=sized, expected=expected)
