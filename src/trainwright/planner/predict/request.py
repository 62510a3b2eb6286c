"""One question to the planner: a model, a workload, a cluster, a stack of software and a layout."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.planner.predict.layouts import Layouts
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import ParallelPlan, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Everything that a prediction depends on."""

    model: ModelSpec
    workload: Workload
    parallel: ParallelPlan
    cluster: ClusterSpec
    stack: Stack

    def layouts(self) -> Layouts:
        """The one layout as arrays of length one."""
        return Layouts.of([self.parallel], [self.workload.recompute], self.workload)
