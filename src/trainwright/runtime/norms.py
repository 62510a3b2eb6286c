"""The norm of a gradient whose parts lie on several ranks, and clipping by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainwright.runtime.mesh import AXES, Mesh


def clip(parameters: Iterable[Tensor], largest: float | None, mesh: Mesh, *, again: Sequence[Tensor] = ()) -> Tensor:
    """Scales all gradients so that their joint L2 norm is at most ``largest``; returns the norm before that.

    The scale is that of ``torch.nn.utils.clip_grad_norm_``: ``largest / (norm + 1e-6)``, at most 1. Parameters in
    ``again`` are another pipeline stage's too, which counts them.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    counted = {id(parameter.grad) for parameter in again}
    norm = global_norm([gradient for gradient in gradients if id(gradient) not in counted], mesh)
    if largest is not None and gradients:
        scale = (largest / (norm + 1e-6)).clamp_max(1.0)
        torch._foreach_mul_([local(gradient) for gradient in gradients], scale)
    return norm


def global_norm(gradients: Sequence[Tensor], mesh: Mesh) -> Tensor:
    """Returns the L2 norm over all ranks of tensors that are sharded over some axes and copied over the others.

    The squares of a copy are divided by the number of copies, so that one sum over all ranks is the whole, and no rank
    must know what the others hold.
    """
    parts = [local(gradient) for gradient in gradients]
    norms = torch._foreach_norm(parts) if parts else ()  # noqa: SLF001  # as above
    exact = torch.float32 if mesh.device_type == "mps" else torch.float64
    total = torch.zeros((), dtype=exact, device=mesh.device_type)
    for gradient, norm in zip(gradients, norms, strict=True):
        total += norm.to(exact).square() / _copies(gradient, mesh)
    mesh.sum(total, *AXES)
    return total.sqrt().to(torch.promote_types(gradients[0].dtype, torch.float32)) if gradients else total.sqrt()


def _copies(tensor: Tensor, mesh: Mesh) -> float:
    """Returns how many ranks of a pipeline stage hold the same elements."""
    parts = 1
    if isinstance(tensor, DTensor):
        for axis, placement in enumerate(tensor.placements):
            parts *= tensor.device_mesh.size(axis) if placement.is_shard() else 1
    return mesh.size(*AXES[1:]) / parts


def local(tensor: Tensor) -> Tensor:
    """Returns what of a tensor lies in this rank's memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
