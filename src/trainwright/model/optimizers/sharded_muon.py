"""Muon over matrices that several ranks share: each keeps its part, and directions are found of whole matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from trainwright.model.muon import Muon, entry_dtype, orthogonal
from trainwright.runtime.cuts import cut_of, whole_shape
from trainwright.runtime.norms import as_part_of


class ShardedMuon(Muon):
    """Muon whose momentum lies where its matrix does; matrices are gathered in the dtype of the iteration's entries.

    Rounding to that dtype is done element by element before the iteration in any case, so that gathering in it changes
    no bit and sends half the bytes.
    """

    def shape(self, parameter: Tensor) -> torch.Size:
        """Returns the shape of a whole matrix."""
        return whole_shape(parameter)

    def local(self, tensors: list[Tensor]) -> list[Tensor]:
        """Returns this rank's part of each tensor."""
        return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]

    def directions(self, stack: list[Tensor], ahead: Sequence[Tensor]) -> list[Tensor]:
        """Returns this rank's part of each direction; all ranks must ask for the same matrices."""
        whole = [_whole(parameter, part) for parameter, part in zip(stack, ahead, strict=True)]
        return [_part(parameter, found) for parameter, found in zip(stack, orthogonal(whole), strict=True)]


def _whole(like: Tensor, part: Tensor) -> Tensor:
    whole, cut = part.to(entry_dtype(part.dtype)), cut_of(like)
    if isinstance(like, DTensor):
        whole = as_part_of(like, whole, like.shape).full_tensor()
    return whole if cut is None else cut.gather(whole)


def _part(like: Tensor, whole: Tensor) -> Tensor:
    cut = cut_of(like)
    whole = whole if cut is None else cut.take(whole)
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).to_local()
