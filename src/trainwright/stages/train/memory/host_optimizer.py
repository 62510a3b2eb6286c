"""AdamW on the host: moments live in its memory, and it computes the update that an accelerator's gradients ask for.

Each update, gradients and weights are copied to the host and weights back (Ren et al., 2021, arXiv 2101.06840, without
its delayed update). The host keeps no weights of its own that could differ from the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainwright.core.errors import RecipeError
from trainwright.model.network import Network
from trainwright.runtime.device import pins
from trainwright.runtime.norms import as_state_of, local
from trainwright.spec.sections.updates.optimizer import OptimizerSection
from trainwright.spec.workload import ParallelPlan, UpdateKernel
from trainwright.stages.train.optimizer import Optimizers


def host_optimizers(network: Network, section: OptimizerSection, kernel: UpdateKernel) -> Optimizers:
    """Returns optimizers that update an accelerator's weights on the host.

    Raises:
        RecipeError: the network is on the host already, or its optimizer is another than AdamW.
    """
    if network.device.type == "cpu":
        raise RecipeError(
            "a processor has no memory beside the host's that the optimizer's state could leave",
            where="train.exec.layout.offload",
            seen="optimizer",
            fix="set train.exec.layout.offload=none",
        )
    return HostOptimizers(network, section, kernel)


class HostOptimizers(Optimizers):
    """Optimizers over copies, in host memory, of this process's parts of the parameters."""

    def __init__(self, network: Network, section: OptimizerSection, kernel: UpdateKernel = "fused") -> None:
        """Make the copies; pinned, where the parameters' device copies from such memory.

        Args:
            network: whose parameters are updated.
            section: of AdamW.
            kernel: that of the update.

        Raises:
            RecipeError: another optimizer; and as ``Optimizers``.
        """
        for reason in section.refusals(ParallelPlan(offload="optimizer")):
            raise RecipeError("the trainer cannot execute this", where="train.exec.layout", seen=reason)
        super().__init__(network, section, kernel)
        self._pins, self._waits = pins(network.device.type), network.device.type != "cpu"
        self._device_of: dict[Tensor, nn.Parameter] = {}
        for group in self._groups():
            group["params"] = [self._copied(parameter) for parameter in group["params"]]

    def _copied(self, parameter: nn.Parameter) -> nn.Parameter:
        """Returns the host's copy of a parameter, with room for its gradient."""
        here = local(parameter)
        copy = nn.Parameter(torch.empty(here.shape, dtype=here.dtype, pin_memory=self._pins))
        copy.grad = torch.zeros_like(copy, pin_memory=self._pins)
        self._device_of[copy], self._names[copy] = parameter, self._names[parameter]
        return copy

    @torch.no_grad()
    def step(self, share: float) -> None:
        """Update every parameter that has a gradient with ``share`` of its group's peak learning rate."""
        rooms = {copy: copy.grad for copy in self._device_of}
        for copy, parameter in self._device_of.items():
            room = rooms[copy]
            if parameter.grad is None or room is None:
                copy.grad = None
            else:
                room.copy_(local(parameter.grad), non_blocking=True)
                copy.copy_(local(parameter), non_blocking=True)
        if self._waits:
            torch.accelerator.synchronize()
        for member in self.members:
            if (refused := getattr(member, "found_inf", None)) is not None:
                member.found_inf = refused.cpu()  # type: ignore[attr-defined]  # a kernel of the host would not wait
        super().step(share)
        for copy, parameter in self._device_of.items():
            if copy.grad is not None:
                local(parameter).copy_(copy, non_blocking=True)
            copy.grad = rooms[copy]

    def zero_grad(self) -> None:
        """Drop every gradient on the device; its room on the host stays."""
        for parameter in self._device_of.values():
            parameter.grad = None

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every state tensor with its name, on the device while it is asked for, laid out as its parameter."""
        for optimizer in self.members:
            for copy, state in optimizer.state.items():
                for key, value in state.items():
                    yield f"{self._names[copy]}.{key}", self._laid_out(self._device_of[copy], value)

    def _laid_out(self, parameter: nn.Parameter, value: Tensor) -> Tensor:
        if not isinstance(parameter, DTensor) or value.ndim != parameter.ndim:
            return value
        return as_state_of(parameter, value.to(local(parameter).device))

    def on_device(self) -> Iterator[Tensor]:
        """Yields nothing: no state is on the device."""
        return iter(())

    def load(self, tensors: dict[str, Tensor], part: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        """Take over state tensors by name, as ``Optimizers`` does."""

        def on_host(copy: Tensor, value: Tensor) -> Tensor:
            whole = value if part is None else part(self._device_of[copy], value)
            return local(whole).to("cpu")

        super().load(tensors, on_host)
