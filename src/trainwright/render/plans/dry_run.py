"""What a dry run counted, rank by rank, beside what the plan says."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.core.spelling import counted as in_words
from trainwright.core.units import format_bytes, format_factor
from trainwright.planner.counts.parallel.dry_run import DryRank, DryRun, Sent, ratio
from trainwright.render.page import Page
from trainwright.spec.summary import ParameterGroup

SHOWN = 6
"""Parameters of a rank that are shown where not all are wanted."""


def show(counted: DryRun, page: Page) -> None:
    """Shows shapes, memory and messages of one rank for all that are like it."""
    layout = counted.parallel
    ranks = "1 rank" if layout.ranks == 1 else f"{layout.ranks:,} ranks"
    page.heading(f"{ranks} on {counted.device}: {_axes(counted)}; nothing was started")
    page.line(_part(counted))
    page.line("counted: what the step does here; planned: what the plan says; ratio: counted over planned")
    for rank in counted.ranks:
        page.line()
        _show_rank(rank, page)
    if counted.groups:
        page.line()
        _show_groups(counted.groups, page)
    for note in counted.notes:
        page.note(note)


def _part(counted: DryRun) -> str:
    """Returns what of a step is counted, in words."""
    sequences = in_words(counted.parallel.micro_batch_sequences, "sequence")
    if counted.micro_batches == 1:
        return f"a whole step of a rank: one micro batch, of {sequences}"
    if counted.passes == counted.micro_batches:
        return f"a whole step of a rank: {counted.passes} micro batches, each of {sequences}"
    return f"of a rank's step {counted.passes} of {counted.micro_batches:,} micro batches, each of {sequences}"


def _axes(counted: DryRun) -> str:
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
    sizes = [f"{name} {size}" for name in names if (size := getattr(counted.parallel, name)) > 1]
    return ", ".join(sizes) or "one process"


def _show_rank(rank: DryRank, page: Page) -> None:
    title = f"rank {rank.rank}" if rank.alike == 1 else f"rank {rank.rank}, and {rank.alike - 1:,} like it"
    shares = list(rank.shares.items())
    few = shares if page.verbose else shares[:SHOWN]
    rows = [(name, _shape(share.whole), _shape(share.local)) for name, share in few]
    page.table(("parameter", "whole", "on the rank"), rows, title=title)
    if len(few) < len(shares):
        page.line(f"and {len(shares) - len(few)} more parameters (--verbose)")
    page.line()
    page.table(("memory at the peak", "counted", "planned", "ratio"), _memory_rows(rank))
    if not rank.memory["gradients"] and not rank.planned_memory["gradients"]:
        page.line("gradients are none at the peak: it comes before the first micro batch has made any")
    page.line()
    columns = ("messages", "along", "counted", "planned", "bytes counted", "bytes planned", "ratio")
    page.table(columns, _message_rows(rank.sent, rank.planned_sent))


def _show_groups(groups: Sequence[ParameterGroup], page: Page) -> None:
    rows = [
        (
            each.match or "others",
            f"{each.tensors:,}",
            f"{each.parameters:,}",
            each.rule or "frozen",
            "" if each.lr is None else f"{each.lr:g}",
            "" if each.weight_decay is None else f"{each.weight_decay:g}",
        )
        for each in groups
    ]
    page.table(("parameters", "tensors", "numbers", "rule", "peak rate", "weight decay"), rows)


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _memory_rows(rank: DryRank) -> list[tuple[str, str, str, str]]:
    """Returns a row for each class, and their sum; nothing beside nothing has no ratio."""
    counted, planned = ({**each, "total": sum(each.values())} for each in (rank.memory, rank.planned_memory))
    return [
        (name, format_bytes(counted[name]), format_bytes(planned[name]), _factor(each if counted[name] else None))
        for name, each in rank.ratios().items()
    ]


def _message_rows(counted: Sequence[Sent], planned: Sequence[Sent]) -> list[tuple[str, ...]]:
    """Returns a row for each kind along each axis; what only one side has is 0 on the other."""
    ours, theirs = ({(each.kind, each.axis): each for each in side} for side in (counted, planned))
    rows: list[tuple[str, ...]] = []
    for kind, axis in dict.fromkeys((*ours, *theirs)):
        nothing = Sent(kind=kind, axis=axis, count=0, size_bytes=0.0)
        one, other = ours.get((kind, axis), nothing), theirs.get((kind, axis), nothing)
        sizes = (
            format_bytes(one.size_bytes),
            format_bytes(other.size_bytes),
            _factor(ratio(one.size_bytes, other.size_bytes)),
        )
        rows.append((kind, axis, f"{one.count:,}", f"{other.count:,}", *sizes))
    return rows


def _factor(value: float | None) -> str:
    return "" if value is None else format_factor(value)
