"""What a step keeps, by torch's own memory tracker, and steps that let it look on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._tools import mod_tracker
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPRefType
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import FSDPModule

from trainwright.model import muon
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.task import Batch
from trainwright.planner.counts.parallel.dry_run import CLASSES
from trainwright.runtime.exchanges import parameter_groups
from trainwright.spec.device import DeviceKind
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.pipeline.schedules import Stage
from trainwright.stages.train.ranks.pipeline.step import MicroBatch, PipelinedStep
from trainwright.stages.train.ranks.step import RankedStep

STATIC = 1
"""What torch 2.13's stages vote for where shapes are known."""
CLASS_OF = {
    "Parameter": "weights",
    "Sharded Param": "weights",
    "Buffer": "activations",
    "Gradient": "gradients",
    "Sharded Grad": "gradients",
    "OptState": "optimizer",
    "Optstate": "optimizer",
    "Activation": "activations",
    "Temp": "activations",
    "Inputs": "activations",
    "Other": "activations",
    "Unsharded Param": "communication",
    "Unsharded Grad": "communication",
    "All Gather": "communication",
    "Reduce Scatter": "communication",
}
"""What torch's memory tracker calls a tensor, as one of ``CLASSES``."""


def by_class(snapshot: dict[torch.device, dict[Any, int]]) -> dict[str, float]:
    """Returns the bytes of ``CLASSES`` at one moment."""
    memory = dict.fromkeys(CLASSES, 0.0)
    for parts in snapshot.values():
        for name, size_bytes in parts.items():
            named = str(getattr(name, "value", name))
            if named != "Total":
                memory[CLASS_OF[named]] += size_bytes
    return memory


def tracker_of(network: Network, optimizers: Optimizers) -> MemTracker:
    """Returns torch's memory tracker for a network, sharded or whole."""
    if isinstance(network, FSDPModule):
        return FSDPMemTracker(network)
    tracker = _WholeTracker()
    tracker.track_external(network, *optimizers.members)
    return tracker


class _WholeTracker(MemTracker):
    """A tracker of all modules together: what each keeps takes torch's most of a step's time, and is not asked for."""

    def _pre_fw_hook(self, module: nn.Module, inputs: Any) -> None:
        if self._mod_tracker.get_known_fqn(module) == type(module).__name__:  # a root, which has all parameters
            self._track_module_params_and_buffers(module, install_grad_hooks=True)

    def _post_fw_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None: ...

    def _pre_bw_hook(self, module: nn.Module, args: Any) -> None: ...

    def _post_bw_hook(self, module: nn.Module, args: Any) -> None: ...


@contextmanager
def forward_hooks_alone() -> Iterator[None]:
    """Leaves out the tracker's hooks of backward passes, which only tell modules apart.

    They hold gradients, and torch refuses them on inputs where a schedule splits the backward pass.
    """
    asked: Any = mod_tracker
    kept = asked.register_multi_grad_hook
    asked.register_multi_grad_hook = lambda *_, **__: None
    try:
        yield
    finally:
        asked.register_multi_grad_hook = kept


@contextmanager
def products_of(kind: DeviceKind) -> Iterator[None]:
    """Lets Muon multiply in what it would on a device of this kind, whatever this processor multiplies in."""
    asked: Any = muon
    kept = asked.native_bf16
    asked.native_bf16 = lambda: kind != "cpu"
    try:
        yield
    finally:
        asked.native_bf16 = kept


class TrackedStep(RankedStep):
    """A step whose tracker begins every pass anew: of a module it can see one pass alone; the peak stays."""

    def __init__(self, *arguments: Any, tracker: MemTracker, **options: Any) -> None:
        """Bind what a step works on, as ``RankedStep``; ``tracker`` is that of its network."""
        super().__init__(*arguments, **options)
        self.tracker = tracker

    def loss(self, micro: Batch) -> Loss:
        """As ``TrainingStep.loss``."""
        self.tracker.reset_mod_stats()
        _name_gradients(self.network, self.tracker, _FSDPRefType.SHARDED_GRAD)
        return super().loss(micro)


class TrackedPipeline(PipelinedStep):
    """A step of a pipeline, whose micro batches are all alike, before a tracker that sees many of them at one time."""

    def __init__(self, *arguments: Any, tracker: MemTracker, **options: Any) -> None:
        """Bind what a step works on, as ``PipelinedStep``; ``tracker`` is that of its network."""
        super().__init__(*arguments, **options)
        self.stage = partial(_TrackedStage, tracker=tracker)

    def _at(self, number: Tensor) -> MicroBatch:
        return self._micro[0]


class _TrackedStage(Stage):
    """A stage whose tracker hears of each pass; all stages know each other's shapes without asking."""

    def __init__(self, network: Network, *arguments: Any, tracker: MemTracker, **options: Any) -> None:
        super().__init__(network, *arguments, **options)
        self._tracked, self._tracker = network, tracker

    def _warmup_forward_vote(self, *_: Any, **__: Any) -> Tensor:
        return torch.ones((), dtype=torch.int32)

    def _get_init_p2p_neighbors_ops(self) -> list[Any]:
        return []  # torch 2.11 asks no vote, and has neighbours meet

    def _warmup_backward_result(self, *_: Any, **__: Any) -> Tensor:
        return torch.tensor([STATIC], dtype=torch.int32)

    def forward_maybe_with_nosync(self, *given: Tensor, micro: Tensor) -> Tensor:
        """As ``Stage.forward_maybe_with_nosync``."""
        # Of a root module the tracker sees one pass alone. Its parts may be in the middle of other passes.
        self._tracker.memory_tracking.pop(self._tracked, None)
        return super().forward_maybe_with_nosync(*given, micro=micro)

    def backward_one_chunk(self, *arguments: Any, **options: Any) -> None:
        """As ``Stage.backward_one_chunk``."""
        super().backward_one_chunk(*arguments, **options)
        _name_gradients(self._tracked, self._tracker, _FSDPRefType.UNSHARDED_GRAD)

    def backward_weight_one_chunk(self, *arguments: Any, **options: Any) -> None:
        """As ``Stage.backward_weight_one_chunk``."""
        super().backward_weight_one_chunk(*arguments, **options)
        _name_gradients(self._tracked, self._tracker, _FSDPRefType.UNSHARDED_GRAD)


def _name_gradients(network: Network, tracker: MemTracker, kind: _FSDPRefType) -> None:
    """Tells a tracker which tensors are whole gradients that wait for their reduction; it takes them for temporary."""
    for group in parameter_groups(network):
        for parameter in group.fsdp_params:
            # A gradient is added up apart where it is reduced in another dtype than its parameter's.
            gathered = getattr(parameter, "_unsharded_param", None)
            for waiting in (parameter.unsharded_accumulated_grad, None if gathered is None else gathered.grad):
                if waiting is not None:
                    tracker._update_and_maybe_create_winfos(waiting, kind)  # noqa: SLF001
