"""Measures what training does most: matrix products, memory traffic, attention, updates, launches, disk.

Every probe computes as training does: results go into fresh memory, gradients of a linear layer are the two further
products of its backward pass, and shapes are those of small and large models. Medians, so that a passing disturbance
does not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.store import writing
from trainwright.core.fingerprint import file_digest
from trainwright.hardware.probes import (
    AttentionProbe,
    BandwidthProbe,
    DiskProbe,
    MatmulPass,
    MatmulProbe,
    UpdateProbe,
)
from trainwright.runtime.device import DTYPES
from trainwright.runtime.stopwatch import Stopwatch

MiB = 1 << 20

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention over (batch, heads, tokens, head size)."""

CPU_LINEARS = (
    (1024, 256, 256), (1024, 256, 1024), (4096, 256, 256), (4096, 256, 768), (4096, 768, 256), (4096, 512, 512),
    (2048, 512, 1536), (2048, 768, 3072), (2048, 3072, 768), (1024, 256, 4096), (512, 768, 32768), (2048, 2048, 2048),
)  # fmt: skip
"""(tokens, inputs, outputs) of the linear layers probed on a CPU: width x width, width x ffn and width x vocabulary."""

FP32_LARGEST = 2048 * 512 * 1536
"""Multiply-adds beyond which a CPU's fp32 products are not probed: their rate no longer depends on the shape."""

CUDA_LINEARS = (
    (4096, 768, 768), (8192, 768, 3072), (8192, 3072, 768), (8192, 2048, 2048), (8192, 4096, 4096), (8192, 4096, 14336),
    (8192, 14336, 4096), (8192, 8192, 8192), (4096, 4096, 32768),
)  # fmt: skip
"""The same on a GPU."""

CPU_WORKING_SETS = (768 << 10, 3 * MiB, 12 * MiB, 48 * MiB, 192 * MiB)
CUDA_WORKING_SETS = (3 * MiB, 48 * MiB, 192 * MiB, 3072 * MiB)
"""Bytes of the three arrays of a bandwidth probe: within a core's cache, within a socket's, and beyond."""

ATTENTIONS = ((8, 2, 256, 64), (4, 4, 512, 64), (4, 2, 512, 128), (2, 4, 1024, 64), (1, 4, 2048, 64))
"""(sequences, heads, tokens, head size) of the attention probes."""


def probe_matmuls(watch: Stopwatch, dtypes: tuple[str, ...]) -> Iterator[MatmulProbe]:
    """The three products of a linear layer, for each shape and precision."""
    for tokens, inputs, outputs in CUDA_LINEARS if watch.device.type == "cuda" else CPU_LINEARS:
        for dtype in dtypes:
            if (
                dtype == "fp32"
                and len(dtypes) > 1
                and tokens * inputs * outputs > FP32_LARGEST
                and watch.device.type == "cpu"
            ):
                continue
            x, weight, grad = (
                torch.randn(shape, dtype=DTYPES[dtype], device=watch.device)
                for shape in ((tokens, inputs), (outputs, inputs), (tokens, outputs))
            )
            products: dict[MatmulPass, tuple[Tensor, Tensor]] = {
                "forward": (x, weight.t()),
                "grad_input": (grad, weight),
                "grad_weight": (grad.t(), x),
            }
            for direction, (left, right) in products.items():
                timing = watch.time(lambda left=left, right=right: torch.mm(left, right))  # type: ignore[misc]
                yield MatmulProbe(
                    dtype=dtype, direction=direction, tokens=tokens, inputs=inputs, outputs=outputs, timing=timing
                )


def probe_bandwidth(watch: Stopwatch) -> Iterator[BandwidthProbe]:
    """``z = x + y`` in fp32 at working sets from one core's cache to main memory."""
    for working_set_bytes in CUDA_WORKING_SETS if watch.device.type == "cuda" else CPU_WORKING_SETS:
        x = torch.ones(working_set_bytes // 12, device=watch.device)
        y = torch.ones_like(x)
        yield BandwidthProbe(working_set_bytes=x.numel() * 12, timing=watch.time(lambda x=x, y=y: x + y))  # type: ignore[misc]


def probe_attention(watch: Stopwatch, dtypes: tuple[str, ...], attend: Attend) -> Iterator[AttentionProbe]:
    """Causal attention, forward and backward, as ``attend(query, key, value)`` computes it."""
    for sequences, heads, tokens, head_size in ATTENTIONS:
        for dtype in dtypes:
            shape = (sequences, heads, tokens, head_size)
            query, key, value, grad = (torch.randn(shape, dtype=DTYPES[dtype], device=watch.device) for _ in range(4))
            leaves = tuple(leaf.requires_grad_() for leaf in (query, key, value))

            def forward(query=query, key=key, value=value):  # type: ignore[no-untyped-def]
                return attend(query, key, value)

            mixed = forward()

            def backward(mixed=mixed, leaves=leaves, grad=grad):  # type: ignore[no-untyped-def]
                torch.autograd.grad(mixed, leaves, grad, retain_graph=True)

            yield AttentionProbe(
                dtype=dtype, sequences=sequences, heads=heads, tokens=tokens, head_size=head_size,
                forward=watch.time(forward), backward=watch.time(backward),
            )  # fmt: skip


def probe_update(watch: Stopwatch, *, parameters: int) -> UpdateProbe:
    """Clipping and one AdamW update over fp32 tensors of 256 Ki elements, as a model's matrices are."""
    size = 1 << 18
    leaves = [torch.zeros(size, device=watch.device, requires_grad=True) for _ in range(max(1, parameters // size))]
    for leaf in leaves:
        leaf.grad = torch.ones_like(leaf)
    optimizer = torch.optim.AdamW(leaves, lr=1e-3, fused=True)

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(leaves, 1.0)
        optimizer.step()

    return UpdateProbe(parameters=size * len(leaves), timing=watch.time(update))


def probe_launch_s(watch: Stopwatch, *, operations: int = 200) -> float:
    """Seconds of one operation on one number: what each operation costs beyond its arithmetic."""
    x = torch.ones(1, device=watch.device)

    def many() -> None:
        for _ in range(operations):
            x.add(1.0)

    return watch.time(many).median_s / operations


def probe_disk(folder: Path, *, size_bytes: int = 64 * MiB) -> DiskProbe:
    """Write a file through to the disk, then read it again.

    The read comes from the operating system's cache where it cannot be told to forget the file.

    Raises:
        MachineError: the folder cannot be written, or the disk is full.
    """
    path = folder / ".disk-probe"
    block = os.urandom(MiB)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            begin = time.perf_counter()
            with path.open("wb") as stream:
                for _ in range(size_bytes // MiB):
                    stream.write(block)
                stream.flush()
                os.fsync(stream.fileno())
                write_s = time.perf_counter() - begin
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            begin = time.perf_counter()
            with path.open("rb", buffering=0) as source:
                while source.read(MiB):
                    pass
            read_s = time.perf_counter() - begin
            begin = time.perf_counter()
            file_digest(path)
            digest_s = time.perf_counter() - begin
        finally:
            path.unlink(missing_ok=True)
    return DiskProbe(size_bytes=size_bytes, write_s=write_s, read_s=read_s, digest_s=digest_s)
