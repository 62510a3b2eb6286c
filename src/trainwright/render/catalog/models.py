"""Models and training software of the catalogue, as tables and documents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainwright.core.units import format_count
from trainwright.planner.counts.parameters import active_parameters
from trainwright.render.page import Page
from trainwright.spec.convnet import transformer
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.hardware.catalogue.models import PublishedModel
    from trainwright.spec.stack import Stack


def model_document(model: PublishedModel) -> dict[str, Any]:
    """Returns the JSON document of a model."""
    return {
        "name": model.name,
        "title": model.title,
        "aliases": model.aliases,
        "parameters": model.parameters,
        "active_parameters": _active(model),
        "spec": model.spec,
        "source": model.source,
        "recorded": model.recorded,
    }


def show_models(models: Sequence[PublishedModel], page: Page) -> None:
    """Shows a row for each model."""
    page.table(("name", "parameters", "active", "layers", "width", "context", "title"), [_row(each) for each in models])


def _row(model: PublishedModel) -> tuple[object, ...]:
    active = _active(model)
    size = (model.name, format_count(model.parameters), "" if active == model.parameters else format_count(active))
    spec = model.spec
    if not spec.is_divisible:
        return *size, "", "", "", model.title
    spec = transformer(spec)
    context = "" if spec.sees_images else f"{spec.context_tokens:,}"
    return *size, spec.layers, f"{spec.width:,}", context, model.title


def _active(model: PublishedModel) -> int:
    spec = model.spec
    # As ``parameters`` counts it: without blocks that only training has.
    return active_parameters(spec.deployed() if isinstance(spec, ModelSpec) else spec)


def stack_document(stack: Stack) -> dict[str, Any]:
    """Returns the JSON document of a training software."""
    return {
        "name": stack.name,
        "title": stack.title,
        "states": stack.states,
        "precision": stack.precision,
        "aliases": stack.aliases,
        "runs": stack.runs,
        "fit": stack.fit,
        "time_spread": stack.time.spread,
        "memory_spread": stack.memory.spread,
        "source": stack.source,
    }


def _rows(stack: Stack, part: str, owner: str) -> object:
    """Returns the published rows that a part is fitted to, or whose numbers it has."""
    return stack.fit.get(part, {}).get("rows", 0) if owner == stack.name else f"of {owner}"


def show_stacks(stacks: Sequence[Stack], page: Page) -> None:
    """Shows a row for each training software, with how far predictions for it are off."""
    rows = [
        (
            each.name,
            each.states,
            f"x {math.exp(each.time.spread):.2f}",
            f"x {math.exp(each.memory.spread):.2f}",
            *(_rows(each, part, owner) for part, owner in (("time", each.time_of), ("memory", each.memory_of))),
            ", ".join(each.runs.axes) or "all",
            each.title,
        )
        for each in stacks
    ]
    heads = ("name", "states", "time off by", "memory off by", "time rows", "memory rows", "methods", "title")
    page.table(heads, rows)
    page.note("off by: one standard deviation; rows: published runs that its numbers were fitted to")
