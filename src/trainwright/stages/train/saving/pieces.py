"""Which rank writes which piece of which tensor, and the copy of the state that is written beside training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.checkpoint.tensor_file import ELEMENT_BYTES, TensorBytes
from trainwright.core.registry import load
from trainwright.runtime.device import pins
from trainwright.runtime.stored_tensors import DTYPES
from trainwright.stages.train.world import World

OWNERS = "trainwright.stages.train.saving.owners:Owners"
CHUNK_BYTES = 1 << 24
"""Bytes that are hashed and written at a time."""


class Claim(NamedTuple):
    """A piece that a rank holds: kind (model or optimizer), name, dtype, whole shape, and its place in that."""

    kind: str
    name: str
    dtype: str
    whole: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of the piece."""
        return prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Copied:
    """A piece whose bytes no later step changes."""

    claim: Claim
    tensor: Tensor

    def bytes(self) -> TensorBytes:
        """Returns what is written of it."""
        flat: NDArray[np.uint8] = self.tensor.reshape(-1).view(torch.uint8).numpy()
        parts = (flat[start : start + CHUNK_BYTES] for start in range(0, flat.size, CHUNK_BYTES))
        return TensorBytes(dtype=self.claim.dtype, shape=self.claim.shape, data=parts)


class HostCopy:
    """Memory of the host that each checkpoint is copied to before it is written; kept, so that copying stays fast."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], Tensor] = {}
        self._owners: Any = None

    @property
    def size_bytes(self) -> int:
        """Returns the bytes that are kept."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def take(self, tensors: Iterable[tuple[str, str, Tensor]], world: World) -> list[Copied]:
        """Copies what this rank writes; all ranks must ask together.

        Args:
            tensors: kind, name and tensor of all that this rank has a part of.
            world: says where each part lies.
        """
        mine = dict(_claimed(tensors, world))
        if world.ranks > 1:
            self._owners = self._owners or load(OWNERS, kind="checkpoint")()
            written = self._owners.written(list(mine), world)
            mine = {claim: tensor for claim, tensor in mine.items() if claim in written}
        copies = [Copied(claim, self._copied(claim, tensor)) for claim, tensor in mine.items()]
        if any(tensor.device.type != "cpu" for tensor in mine.values()):
            torch.accelerator.synchronize()
        return copies

    def _copied(self, claim: Claim, tensor: Tensor) -> Tensor:
        key, pinned = (claim.kind, claim.name), pins(tensor.device.type)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = self._buffers[key] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        return buffer.copy_(tensor, non_blocking=pinned)


def _claimed(tensors: Iterable[tuple[str, str, Tensor]], world: World) -> Iterator[tuple[Claim, Tensor]]:
    for kind, name, tensor in tensors:
        (here,) = world.local((tensor.detach(),))
        whole, offsets = world.placement(name, tensor)
        if here.numel() or not prod(whole):
            yield Claim(kind, name, DTYPES[here.dtype], whole, offsets, tuple(here.shape)), here
