"""Checkpoints for people: a list, what is damaged of one, and what differs between two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan

from trainwright.artifact.checkpoint.difference import TensorDifference
from trainwright.artifact.checkpoint.index import Index
from trainwright.artifact.checkpoint.listing import Listed
from trainwright.core.spelling import counted
from trainwright.core.units import format_bytes
from trainwright.render.page import Page

KINDS = {
    "missing": "on one side alone",
    "shape": "in shape",
    "dtype": "in dtype",
    "values": "in values",
}
"""What ``TensorDifference.kind`` is in words, the gravest first."""


def show_list(found: Sequence[Listed], page: Page) -> None:
    """Writes a row for each checkpoint, and below them what is wrong with those of which something is."""
    columns = ("checkpoint", "step", "size", "layout", "loss", "validation", "state")
    rows = [
        (
            each.path,
            each.step,
            None if each.size_bytes is None else format_bytes(each.size_bytes),
            _layout(each.layout) if each.ranks else None,
            None if each.loss is None else f"{each.loss:.4f}",
            None if "loss" not in each.metrics else f"{each.metrics['loss']:.4f}",
            each.state,
        )
        for each in found
    ]
    page.table(columns, rows)
    for each in found:
        if each.damage is not None:
            page.line(f"{each.path.name}: {each.damage}")
    if any(each.damage is None for each in found):
        page.note("sizes alone were compared: trainwright checkpoint verify CHECKPOINT reads every byte")


def _layout(layout: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={ranks}" for axis, ranks in layout.items()) or "one process"


def show_check(index: Index, damages: Sequence[str], page: Page, *, name: str = "") -> None:
    """Writes that every digest is right, or what is damaged; ``name``: of a checkpoint of several."""
    tensors = counted(len(index.model) + len(index.optimizer), "tensor")
    files = counted(len(index.files), "file")
    verdict = f"{counted(len(damages), 'problem')}:" if damages else "every digest is right."
    begin = f"{name}: step" if name else "Step"
    page.heading(f"{begin} {index.step}, {tensors} in {files}, {format_bytes(index.size_bytes)}: {verdict}")
    for damage in damages:
        page.line(damage)


def show_differences(found: Sequence[TensorDifference], page: Page) -> None:
    """Writes how many tensors differ, in what and by how much at most, and a row for each."""
    if not found:
        page.heading("Every tensor is the same.")
        return
    page.heading(_at_a_glance(found))
    rows = [
        (
            each.name,
            _what_differs(each),
            each.elements,
            None if each.max_abs is None else f"{each.max_abs:.3g}",
            None if each.relative is None else f"{each.relative:.3g}",
        )
        for each in found
    ]
    page.table(("tensor", "differs in", "elements", "max abs", "relative"), rows)


def _what_differs(each: TensorDifference) -> str:
    if each.kind == "missing":
        return f"missing in the {'first' if each.expected == 'there' else 'second'}"
    return each.kind if each.seen is None else f"{each.kind}: {each.seen}, {each.expected}"


def _at_a_glance(found: Sequence[TensorDifference]) -> str:
    kinds = Counter(each.kind for each in found)
    parts = [f"{kinds[kind]} {words}" for kind, words in KINDS.items() if kinds[kind]]
    numbers = {each.name: each.relative for each in found if each.relative is not None}
    # NaN, where a number is none, is the largest difference that there is.
    worst = max(numbers, key=lambda name: (isnan(numbers[name]), numbers[name]), default=None)
    most = "" if worst is None else f"; the most in {worst}, by {numbers[worst]:.3g} of its norm"
    return f"{counted(len(found), 'tensor')} {'differs' if len(found) == 1 else 'differ'}: {', '.join(parts)}{most}."
