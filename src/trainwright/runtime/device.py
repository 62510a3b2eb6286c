"""The device to compute on, and what torch knows about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from trainwright.core.errors import MachineError
from trainwright.hardware.machine.processor import cpu_features

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Torch's types by our names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that training or probing runs on; ``memory_bytes`` is the accelerator's, None for a CPU."""

    kind: Literal["cpu", "cuda"]
    name: str
    memory_bytes: int | None
    native_bf16: bool
    cuda: str | None = None
    compute_capability: str | None = None

    @property
    def torch_device(self) -> torch.device:
        """Returns the device that tensors are made on."""
        return torch.device(self.kind)


def choose(wanted: Literal["auto", "cpu", "cuda"] = "auto") -> Device:
    """Returns the device asked for; ``auto`` takes a CUDA device where torch sees one.

    Raises:
        MachineError: CUDA is asked for and torch sees none; says whether torch or the driver lacks it.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        seen, fix = "a torch built with CUDA that finds no GPU or driver", "check nvidia-smi"
        if torch.version.cuda is None:
            seen = f"torch {torch.__version__}, built without CUDA"
            fix = "install a CUDA build of torch (https://pytorch.org/get-started)"
        fix += ", or set train.exec.device=cpu"
        raise MachineError("no CUDA device here", where="train.exec.device", seen=seen, fix=fix)
    if wanted == "cpu" or not torch.cuda.is_available():
        return Device(
            kind="cpu",
            name=torch.backends.cpu.get_cpu_capability(),
            memory_bytes=None,
            native_bf16=_cpu_bf16(),
        )
    properties = torch.cuda.get_device_properties(0)
    return Device(
        kind="cuda",
        name=properties.name,
        memory_bytes=properties.total_memory,
        native_bf16=properties.major >= 8,
        cuda=torch.version.cuda,
        compute_capability=f"{properties.major}.{properties.minor}",
    )


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything asked of it; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _cpu_bf16() -> bool:
    """Returns whether this CPU has instructions for bf16 products: AVX-512 BF16, AMX or Arm's BF16."""
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(cpu_features())
