"""Pictures of a plan on a cluster: memory by class, and the phases of a step."""

from __future__ import annotations

from pathlib import Path

from trainwright.planner.plan.cluster import Planned
from trainwright.planner.plan.layout import mesh
from trainwright.render import pictures
from trainwright.render.plans.cluster import verdict
from trainwright.spec.plan import Plan


def draw(plan: Plan, planned: Planned, path: Path) -> tuple[Path, Path]:
    """Returns two pictures: memory by class, and the phases of a step."""
    name = mesh(plan.parallel, plan.workload.recompute)
    memory, step = path, path.with_stem(f"{path.stem}-step")
    estimate = plan.estimate
    bar = pictures.MemoryBar(
        name=name, parts=estimate.memory.as_dict(), available_bytes=estimate.memory_available_bytes
    )
    pictures.memory_bars([bar], memory, title=verdict(plan))
    table = planned.choice.forecast.step
    parts = {
        "forward": table.forward,
        "backward": table.backward,
        "communicate": table.communicate,
        "update": table.update,
        "host": table.host,
        "idle": table.idle,
    }
    shown = {phase: float(seconds[0]) for phase, seconds in parts.items()}
    pictures.step_bars([pictures.StepBar(name=name, parts=shown)], step)
    return memory, step
