"""What a teacher costs beside the network that learns from it, which the plan's tables do not have."""

from __future__ import annotations

from trainwright.artifact.hub.base import shape_file
from trainwright.artifact.model_folder import read_shape
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.plan import Assumption
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import DistillSection
from trainwright.spec.workload import Workload

WHY = "beside the tables, which count the network that learns alone"


def of_teacher(recipe: Recipe, workload: Workload) -> tuple[Assumption, ...]:
    """Returns megabytes of its weights on each device and operations of its forward pass; unknown where it is not here.

    Raises:
        TrainwrightError: its shape cannot be read.
    """
    if not isinstance(recipe.task, DistillSection):
        return ()
    path = shape_file(recipe.task.teacher)
    if path is None:
        why = f"{WHY}; {recipe.task.teacher} is not here"
        return (Assumption("teacher", "unknown", "", "recipe", why, key="teacher"),)
    shape, tokens = read_shape(path.parent), workload.sequence_tokens
    element_bytes = 4 if workload.precision in ("fp32", "tf32") else 2
    mega_flops = count_flops(shape, sequences=1, sequence_tokens=tokens).forward / tokens / 1e6
    size_mb = total_parameters(shape) * element_bytes / 1e6
    return (
        Assumption("teacher's weights on each device", size_mb, "MB", "recipe", WHY, key="teacher_megabytes"),
        Assumption("teacher's forward pass", mega_flops, "MFLOP/token", "recipe", WHY, key="teacher_mflops_per_token"),
    )
