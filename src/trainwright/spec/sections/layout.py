"""``train.exec.layout``: how the processes of one training share its work."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.spec.sections.base import Positive, Section
from trainwright.spec.workload import ContextWay, ParallelPlan, Schedule, ZeroStage

AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")
OF_AXES = {
    "context": ("cp",),
    "zero_stage": ("dp_shard", "cp"),
    "sequence_parallel": ("tp",),
    "schedule": ("pp",),
    "virtual_stages": ("pp",),
}
"""Keys that say something of axes, and nothing where these have one rank."""
SHARED_BY_NONE = ("zero_stage", 0)
"""True of a layout whose ranks share nothing."""


class LayoutSection(Section):
    """The axes of the mesh; their product is the number of processes."""

    dp_replicate: Positive = Field(1, description="copies of the model, each on other sequences")
    dp_shard: Positive = Field(1, description="ranks that share weights and optimizer state, each on other sequences")
    tp: Positive = Field(1, description="ranks that share every matrix (tensor parallel)")
    pp: Positive = Field(1, description="stages of the layers (pipeline parallel)")
    cp: Positive = Field(1, description="parts of every sequence (context parallel)")
    context: ContextWay = Field(
        "gather", description="what cp ranks exchange: all keys and values, or tokens for heads (ulysses)"
    )
    ep: Positive = Field(1, description="ranks that share the experts; they lie in the data-parallel axes")
    zero_stage: ZeroStage = Field(
        3, description="what dp_shard and cp share: 1 optimizer state, 2 gradients too, 3 weights too (FSDP)"
    )
    sequence_parallel: bool = Field(True, description="with tp, share activations between matrices too")
    schedule: Schedule = Field("1f1b", description="order of micro batches in a pipeline")
    virtual_stages: Positive = Field(1, description="chunks of layers on each pipeline rank; more than one interleaves")
    offload: Literal["none", "optimizer"] = Field(
        "none", description="optimizer: its state lives in host memory, and the host updates; not on a CPU"
    )
    shares: tuple[Positive, ...] = Field(
        (), description="parts of the batch by proportion, one for each data-parallel place or group of neighbours"
    )

    @model_validator(mode="after")
    def _each_key_does_something(self) -> Self:
        if not self.model_fields_set & {*AXES, "shares", "offload"}:
            named = f", seen {', '.join(sorted(self.model_fields_set))} alone" if self.model_fields_set else ""
            raise ValueError(f"a layout says how many ranks: set one of {', '.join(AXES)}{named}, or layout: auto")
        for key, axes in OF_AXES.items():
            value, default = getattr(self, key), type(self).model_fields[key].default
            if all(getattr(self, axis) == 1 for axis in axes) and value != default and (key, value) != SHARED_BY_NONE:
                needs = " or ".join(axes)
                raise ValueError(f"{key}={value} does nothing without {needs}: set more there, or leave {key} out")
        return self

    def parallel(self) -> ParallelPlan:
        """Returns the layout, its micro batch left at 1; several chunks interleave where no schedule is asked for."""
        asked = {name: getattr(self, name) for name in type(self).model_fields}
        if self.virtual_stages > 1 and "schedule" not in self.model_fields_set:
            asked["schedule"] = "interleaved"
        return ParallelPlan(**asked)
