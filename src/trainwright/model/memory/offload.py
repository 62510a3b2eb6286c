"""What a pass saves for the backward pass waits in host memory, and is back before it is needed.

Each storage crosses once, whatever views of it are saved, and comes back as the same bytes. On an accelerator another
stream copies behind the passes, from pinned memory where its record says so; those streams have never run on hardware.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from trainwright.core.errors import RecipeError
from trainwright.model.network import Network
from trainwright.runtime.device import pins
from trainwright.runtime.norms import local
from trainwright.spec.stack import STASH

LEAST_BYTES = 1024
"""Smaller ones stay on the device."""


def offload_activations(network: Network) -> None:
    """Lets what a network saves wait in host memory.

    Args:
        network: on its device, as it trains: sharded, if it is.

    Raises:
        RecipeError: it computes on a processor.
    """
    if network.device.type == "cpu":
        raise RecipeError(
            "a processor has no memory beside the host's that activations could leave",
            where="train.activation_offload",
            seen="true",
            fix="set train.activation_offload=false; train.recompute=full keeps less",
        )
    network.keeping, network.stash = HostActivations(network).keeping, STASH


class _Saved:
    """One storage: on the device until its copy is complete, then on the host, then on the device again."""

    def __init__(self, source: torch.UntypedStorage, before: _Saved | None) -> None:
        self.here: torch.UntypedStorage | None = source
        self.source = weakref.ref(source)
        self.host = torch.empty(source.nbytes(), dtype=torch.uint8, pin_memory=pins(source.device.type))
        self.before = None if before is None else weakref.ref(before)
        self.arrived: torch.Event | None = None


class _View(NamedTuple):
    """What autograd keeps of a saved tensor; the storage is let go of with the last of its views."""

    saved: _Saved
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]


class HostActivations:
    """The saved tensors of one network; parameters, gathered ones too, stay where they are."""

    def __init__(self, network: nn.Module) -> None:
        """Learn which storages are the network's own.

        Args:
            network: whose blocks may be sharded.
        """
        device = next(network.parameters()).device
        self._side = None if device.type == "cpu" else torch.Stream(device=device)
        self._known = _names(network.parameters())
        self._leaving: deque[weakref.ref[_Saved]] = deque()
        self._by_name: weakref.WeakValueDictionary[tuple[int, int], _Saved] = weakref.WeakValueDictionary()
        self._last: weakref.ref[_Saved] | None = None
        self.gone_bytes = 0
        """Bytes copied to the host so far."""
        for module in network.modules():
            if isinstance(module, FSDPModule):  # its parameters are other tensors while it computes
                module.register_forward_pre_hook(self._learn)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Send to the host what is saved within."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    @property
    def waiting(self) -> list[_Saved]:
        """Returns what is saved and not used up yet."""
        return list(self._by_name.values())

    def _learn(self, module: nn.Module, inputs: Any) -> None:
        del inputs
        self._known |= _names(module.parameters())

    def _pack(self, tensor: Tensor) -> Tensor | _View:
        if type(tensor) not in (Tensor, nn.Parameter):  # several tensors in one, such as a DTensor
            return tensor
        storage = tensor.untyped_storage()
        if _name(storage) in self._known or storage.nbytes() < LEAST_BYTES:
            return tensor
        # What is written to between two uses is saved twice.
        key = _name(storage), tensor._version  # noqa: SLF001  # torch's count of writes
        saved = self._by_name.get(key)
        if saved is None or saved.source() is None:  # else the name is another storage's by now
            saved = self._by_name[key] = self._send(storage)
        return _View(saved, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())

    def _send(self, storage: torch.UntypedStorage) -> _Saved:
        saved = _Saved(storage, None if self._last is None else self._last())
        source = _bytes_of(storage)
        if self._side is None:
            saved.host.copy_(source)
        else:
            self._side.wait_stream(torch.accelerator.current_stream())
            with self._side:
                saved.host.copy_(source, non_blocking=True)
            source.record_stream(self._side)  # its memory is no one's before the copy is complete
        self.gone_bytes += storage.nbytes()
        self._last = weakref.ref(saved)
        self._leaving.append(self._last)
        if len(self._leaving) > STASH:
            first = self._leaving.popleft()()
            if first is not None:
                first.here = None
        return saved

    def _unpack(self, kept: Tensor | _View) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        saved: _Saved | None = kept.saved
        for _ in range(1 + STASH):  # this one, and those that are needed next
            if saved is not None:
                self._fetch(saved)
                saved = None if saved.before is None else saved.before()
        storage, arrived = kept.saved.here, kept.saved.arrived
        assert storage is not None
        if arrived is not None:
            torch.accelerator.current_stream().wait_event(arrived)
        empty = torch.empty(0, dtype=kept.dtype, device=storage.device)
        return empty.set_(storage, kept.offset, kept.shape, kept.strides)

    def _fetch(self, saved: _Saved) -> None:
        """Brings a storage back, unless it is there; on an accelerator who uses it waits for it."""
        if saved.here is not None:
            return
        if self._side is None:
            saved.here = saved.host.clone().untyped_storage()
            return
        now = torch.accelerator.current_stream()
        with self._side:
            back = saved.host.to(self._side.device, non_blocking=True)
        back.record_stream(now)
        saved.here, saved.arrived = back.untyped_storage(), self._side.record_event()


def _name(storage: torch.UntypedStorage) -> int:
    """Returns the one name that a storage keeps through all of its Python wrappers."""
    return storage._cdata  # noqa: SLF001


def _names(parameters: Iterable[Tensor]) -> set[int]:
    return {_name(local(parameter).untyped_storage()) for parameter in parameters}


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
