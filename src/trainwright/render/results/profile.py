"""A profile for people: phases, operators, and the picture of one step over all ranks."""

from __future__ import annotations

import statistics
from pathlib import Path

from trainwright.core.units import format_seconds
from trainwright.planner.evidence.profile import Profile
from trainwright.render.page import Page
from trainwright.render.pictures.gantt import Lane, gantt

SHOWN_OPERATORS = 10


def show(profile: Profile, page: Page) -> None:
    """Writes how long a step takes, where its time goes, and which operators take longest."""
    count = profile.last - profile.first + 1
    whole_s = statistics.mean(rank.phases.total_s for rank in profile.ranks)
    page.heading(
        f"{profile.recipe} on {profile.device}: a step takes {format_seconds(whole_s)} under the profiler "
        f"(mean of {count}, updates {profile.first} to {profile.last})"
    )
    by_rank = [rank.phases.as_dict() for rank in profile.ranks]
    rows = []
    for phase in by_rank[0]:
        seconds = [phases[phase] for phases in by_rank]
        if max(seconds) > 0:
            mean_s = statistics.mean(seconds)
            spread = (f"{1e3 * min(seconds):.2f}", f"{1e3 * max(seconds):.2f}") if len(seconds) > 1 else ()
            rows.append((phase.replace("_", " "), f"{1e3 * mean_s:.2f}", f"{mean_s / whole_s:.1%}", *spread))
    several = ("least of a rank", "most of a rank") if len(by_rank) > 1 else ()
    page.table(("phase", "ms", "share", *several), rows)
    page.line()
    operators = profile.ranks[0].operators[:SHOWN_OPERATORS]
    page.table(
        ("operator" if len(by_rank) == 1 else "operator of rank 0", "calls", "ms a step"),
        [(each.name, each.calls, f"{1e3 * each.self_s / count:.2f}") for each in operators],
    )


def draw(profile: Profile, path: Path) -> None:
    """Draws one step of all ranks, that of the middle length on the first one; raises as ``gantt``."""
    lengths = [step[-1].end_s - step[0].begin_s for step in profile.ranks[0].steps]
    number = lengths.index(statistics.median_low(lengths))
    begin_s = min(rank.began_unix_s + rank.steps[number][0].begin_s for rank in profile.ranks)
    lanes = []
    for rank in profile.ranks:
        offset_s = rank.began_unix_s - begin_s
        bars = [(each.phase, offset_s + each.begin_s, offset_s + each.end_s) for each in rank.steps[number]]
        lanes.append(Lane(name=f"rank {rank.rank}", bars=bars))
    gantt(lanes, path, title=f"{profile.recipe}: update {profile.first + number}, phases of every rank")
