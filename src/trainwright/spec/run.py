"""``RunSpec``: what a prediction is about. A run is what happened; a ``RunSpec`` is what is asked about."""

from __future__ import annotations

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.spec.convnet import AnyModel, ConvNetSpec, transformer
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, ParallelPlan, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """A network, what it is trained on, the machines, and the software that trains it.

    A layout is chosen for a run; it is no part of it.
    """

    model: AnyModel
    workload: Workload
    cluster: ClusterSpec
    stack: Stack
    kernels: KernelChoice = DEFAULT_KERNELS
    """What our own trainer is told to run; other stacks have theirs."""
    tunes: bool = False
    """A trained model is trained further, which software may divide by fewer axes (``Support.tuned``)."""

    @property
    def transformer(self) -> ModelSpec:
        """Returns the network, where only a transformer will do; raises as ``transformer``."""
        return transformer(self.model)

    @property
    def convnet(self) -> ConvNetSpec:
        """Returns the network, where only a convolutional one will do.

        Raises:
            RecipeError: it is a transformer.
        """
        if isinstance(self.model, ModelSpec):
            raise RecipeError("this is for convolutional networks, not for transformers", seen=self.model.family)
        return self.model


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedRun:
    """A run in one layout: what was measured, or what is planned."""

    run: RunSpec
    parallel: ParallelPlan
