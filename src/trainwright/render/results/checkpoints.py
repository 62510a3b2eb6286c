"""Checkpoints for people: a list, what is damaged of one, and what differs between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainwright.artifact.checkpoint.difference import TensorDifference
from trainwright.artifact.checkpoint.index import Index
from trainwright.artifact.checkpoint.listing import Listed
from trainwright.core.spelling import counted
from trainwright.core.units import format_bytes
from trainwright.render.page import Page


def show_list(found: Sequence[Listed], page: Page) -> None:
    """Writes a row for each checkpoint."""
    columns = ("checkpoint", "step", "size", "layout", "loss", "validation", "state")
    rows = [
        (
            each.path,
            each.step,
            None if each.size_bytes is None else format_bytes(each.size_bytes),
            _layout(each.layout) if each.ranks else None,
            None if each.loss is None else f"{each.loss:.4f}",
            None if "loss" not in each.metrics else f"{each.metrics['loss']:.4f}",
            each.damage or "complete",
        )
        for each in found
    ]
    page.table(columns, rows)


def _layout(layout: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={ranks}" for axis, ranks in layout.items()) or "one process"


def show_check(index: Index, damages: Sequence[str], page: Page) -> None:
    """Writes that every digest is right, or what is damaged."""
    tensors = counted(len(index.model) + len(index.optimizer), "tensor")
    files = counted(len(index.files), "file")
    verdict = f"{counted(len(damages), 'problem')}:" if damages else "every digest is right."
    page.heading(f"Step {index.step}, {tensors} in {files}, {format_bytes(index.size_bytes)}: {verdict}")
    for damage in damages:
        page.line(damage)


def show_differences(found: Sequence[TensorDifference], page: Page) -> None:
    """Writes a row for each tensor that differs."""
    if not found:
        page.heading("Every tensor is the same.")
        return
    rows = [
        (
            each.name,
            each.kind if each.seen is None else f"{each.kind}: {each.seen}, {each.expected}",
            each.elements,
            None if each.max_abs is None else f"{each.max_abs:.3g}",
            None if each.relative is None else f"{each.relative:.3g}",
        )
        for each in found
    ]
    page.table(("tensor", "differs in", "elements", "max abs", "relative"), rows)
