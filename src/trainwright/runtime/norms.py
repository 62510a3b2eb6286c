"""Gradients whose parts and copies lie on several ranks: their sum over copies, their norm, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainwright.runtime.collectives import added
from trainwright.runtime.cuts import cut_of
from trainwright.runtime.device import widest
from trainwright.runtime.mesh import AXES, Mesh


def clip(parameters: Iterable[Tensor], largest: float | None, mesh: Mesh, *, again: Sequence[Tensor] = ()) -> Tensor:
    """Scales all gradients so that their joint L2 norm is at most ``largest``; returns the norm before that.

    The scale is that of ``torch.nn.utils.clip_grad_norm_``: ``largest / (norm + 1e-6)``, at most 1. Parameters in
    ``again`` are another pipeline stage's too, which counts them.
    """
    updated = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in updated if parameter.grad is not None]
    counted = {id(parameter) for parameter in again}
    norm = global_norm([parameter for parameter in updated if id(parameter) not in counted], mesh)
    if largest is not None and gradients:
        scale = (largest / (norm + 1e-6)).clamp_max(1.0)
        torch._foreach_mul_([local(gradient) for gradient in gradients], scale)
    return norm


def global_norm(parameters: Sequence[Tensor], mesh: Mesh) -> Tensor:
    """Returns the L2 norm over all ranks of gradients that are sharded over some axes and copied over the others.

    The squares of a copy are divided by the number of copies, so that one sum over all ranks is the whole, and no rank
    must know what the others hold.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    parts = [local(gradient) for gradient in gradients]
    norms = torch._foreach_norm(parts) if parts else ()  # noqa: SLF001  # torch's own, a kernel for many tensors
    exact = widest(mesh.device_type)
    total = torch.zeros((), dtype=exact, device=mesh.device_type)
    for parameter, norm in zip(parameters, norms, strict=True):
        total += norm.to(exact).square() / _copies(parameter, mesh)
    mesh.sum(total, *AXES)
    return total.sqrt().to(torch.promote_types(gradients[0].dtype, torch.float32)) if gradients else total.sqrt()


def _copies(tensor: Tensor, mesh: Mesh) -> float:
    """Returns how many ranks of a pipeline stage hold the same elements."""
    parts = 1
    if isinstance(tensor, DTensor):
        for axis, placement in enumerate(tensor.placements):
            parts *= tensor.device_mesh.size(axis) if placement.is_shard() else 1
    cut = cut_of(tensor)
    return mesh.size(*AXES[1:]) / (parts if cut is None else parts * len(set(cut.parts)))


def local(tensor: Tensor) -> Tensor:
    """Returns what of a tensor lies in this rank's memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def as_part_of(like: DTensor, part: Tensor, shape: Sequence[int]) -> DTensor:
    """Returns this rank's part of a tensor of this whole ``shape`` as one whose parts lie as those of ``like`` do."""
    stride = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


def as_state_of(parameter: DTensor, part: Tensor) -> DTensor:
    """Returns this rank's part of a state of a parameter: of its shape, or with rows of other sizes."""
    same = part.shape == local(parameter).shape
    return as_part_of(parameter, part, parameter.shape if same else (parameter.shape[0], *part.shape[1:]))


def add_copies(parameters: Iterable[Tensor]) -> None:
    """Adds up the gradients of copies over the ranks that keep them, all in one message.

    Each part has a place of its own in it, where its copies are added up; the other ranks' is zero there.
    """
    pairs = [
        (local(parameter.grad), cut)
        for parameter in parameters
        if parameter.grad is not None and (cut := cut_of(parameter)) is not None and cut.summed
    ]
    if not pairs:
        return
    places = []
    for gradient, cut in pairs:
        each = sorted(set(cut.parts), key=lambda part: part.start)
        place = gradient.new_zeros(len(each), gradient.numel())
        place[each.index(cut.parts[cut.rank])] = gradient.reshape(-1)
        places.append(place)
    whole = added(torch.cat([place.reshape(-1) for place in places]), pairs[0][1].group.group_name)
    for (gradient, cut), place in zip(pairs, whole.split([place.numel() for place in places]), strict=True):
        each = sorted(set(cut.parts), key=lambda part: part.start)
        mine = place.view(len(each), -1)[each.index(cut.parts[cut.rank])]
        gradient.copy_(mine.view_as(gradient))
