"""Measured memory, by the same classes that the planner predicts."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.core.registry import load
from trainwright.runtime.device import ACCELERATORS
from trainwright.spec.measures import MemoryUse

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def resident_bytes() -> int:
    """Returns bytes of this process in physical memory now (Linux), or its peak where only that is known."""
    return _status("VmRSS") or _lifetime_peak()


def peak_resident_bytes() -> int:
    """Highest resident bytes since ``reset_peak``, or since the process began where it cannot be reset."""
    return _status("VmHWM") or _lifetime_peak()


def reset_peak(device: torch.device) -> None:
    """Forget earlier peaks; give freed heap back first, so that earlier work does not count as ours."""
    gc.collect()
    if device.type != "cpu":
        load(f"{ACCELERATORS}:reset_peak", kind="device")(device)
    elif _CLEAR.exists():
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text(_RESET_PEAK)


def device_bytes(device: torch.device) -> tuple[int, int, int] | None:
    """Returns bytes allocated now, at their peak, and reserved at its; of a CPU's process what is resident.

    None where nobody counts.
    """
    if device.type == "cpu":
        peak = peak_resident_bytes()
        return resident_bytes(), peak, peak
    counted: tuple[int, int, int] | None = load(f"{ACCELERATORS}:memory_bytes", kind="device")(device)
    return counted


def _status(field: str) -> int:
    if not _STATUS.exists():
        return 0
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _lifetime_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns bytes of the tensors' storages, each storage once."""
    storages = {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storages.values())


def _name(storage: torch.UntypedStorage) -> int:
    """Returns the one name that a storage keeps through all of its Python wrappers."""
    return storage._cdata  # noqa: SLF001


class SavedBytes:
    """Bytes that autograd keeps for the backward pass, each storage once; parameters do not count."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._known = {_name(parameter.untyped_storage()) for parameter in parameters}
        self._storages: dict[int, int] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is saved within."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
            yield

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if _name(storage) not in self._known:
            self._storages[_name(storage)] = storage.nbytes()
        return tensor

    def add_live(self, live: LiveBytes, *, result: Tensor) -> None:
        """Count what else is alive of a pass, but for its result: what recomputation keeps, autograd does not save."""
        known = {*self._known, _name(result.untyped_storage())}
        self._storages.update((name, size) for name, size in live.now().items() if name not in known)

    @property
    def total_bytes(self) -> int:
        """Returns bytes counted so far."""
        return sum(self._storages.values())

    def largest_bytes(self, count: int) -> int:
        """Returns bytes of the largest ``count`` storages."""
        return sum(sorted(self._storages.values())[-count:])


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside this context hold at one moment."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, int] = {}
        self.peak_bytes = 0

    def now(self) -> dict[int, int]:
        """Returns the bytes of each storage that is alive, by what tells it from others."""
        return dict(self._live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._watch(tensor.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, sum(self._live.values()))
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key = _name(storage)
        if key not in self._live:
            self._live[key] = storage.nbytes()
            weakref.finalize(storage, self._live.pop, key, None)


def measured_use(
    *,
    device: torch.device,
    weights: int,
    gradients: int,
    optimizer: int,
    activations: int,
    logits: int,
    beside: int = 0,
) -> MemoryUse:
    """Returns the peak of a training run by class.

    Args:
        device: where it ran; beside a CPU the peak is torch's allocated peak and ``reserved_unused`` what it holds
            beyond; where nobody counts, the classes are all that is known.
        weights: bytes of the parameters.
        gradients: bytes of their gradients.
        optimizer: bytes of the optimizer's state.
        activations: bytes saved for the backward pass of one micro batch.
        logits: bytes of one chunk of logits and its gradient.
        beside: bytes of the peak that are no training, and are left out: the copy that a checkpoint is written from.

    Returns:
        Classes that sum to the measured peak; what none of them explains is ``workspace``: on a CPU the process
        before the model, temporaries of a pass, and what malloc could not give back.
    """
    explained = weights + gradients + optimizer + activations + logits
    _, peak, reserved = device_bytes(device) or (0, explained, explained)
    return MemoryUse(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        logits=logits,
        workspace=max(peak - beside - explained, 0),
        reserved_unused=reserved - peak,
    )
