"""Measures what training does most: matrix products, memory traffic, attention, updates, launches, disk.

Every probe computes as training does: results go into fresh memory, gradients of a linear layer are the two further
products of its backward pass, and shapes are those of small and large models. Medians, so that a passing disturbance
does not count.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.store import writing
from trainwright.core.units import MIB
from trainwright.hardware.machine.probes import (
    AttentionProbe,
    BandwidthProbe,
    DiskProbe,
    MatmulPass,
    MatmulProbe,
    PeakProbe,
    UpdateProbe,
)
from trainwright.runtime.device import DTYPES
from trainwright.runtime.timing.stopwatch import Stopwatch

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention over (batch, heads, tokens, head size)."""

Linear = tuple[int, int, int]
"""(tokens, inputs, outputs) of a linear layer."""

Attention = tuple[int, int, int, int]
"""(sequences, heads, tokens, head size)."""


def probe_peaks(watch: Stopwatch, entries: Iterable[tuple[int, str]]) -> Iterator[PeakProbe]:
    """Square products in each precision, into memory that is already there."""
    for side, dtype in entries:
        left, right, out = (torch.randn(side, side, device=watch.device).to(DTYPES[dtype]) for _ in range(3))
        timing = watch.time(partial(torch.mm, left, right, out=out))
        yield PeakProbe(dtype=dtype, side=side, timing=timing)


def probe_matmuls(watch: Stopwatch, entries: Iterable[tuple[Linear, str]]) -> Iterator[MatmulProbe]:
    """Yields the three products of a linear layer, for each shape and precision."""
    for (tokens, inputs, outputs), dtype in entries:
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
            timing = watch.time(partial(torch.mm, left, right))
            yield MatmulProbe(
                dtype=dtype, direction=direction, tokens=tokens, inputs=inputs, outputs=outputs, timing=timing
            )


def probe_bandwidth(watch: Stopwatch, working_sets: Iterable[int]) -> Iterator[BandwidthProbe]:
    """``z = x + y`` in fp32 at working sets from one core's cache to main memory, in bytes of the three arrays."""
    for working_set_bytes in working_sets:
        x = torch.ones(working_set_bytes // 12, device=watch.device)
        y = torch.ones_like(x)
        yield BandwidthProbe(working_set_bytes=x.numel() * 12, timing=watch.time(partial(torch.add, x, y)))


def probe_attention(
    watch: Stopwatch, entries: Iterable[tuple[Attention, str]], attend: Attend
) -> Iterator[AttentionProbe]:
    """Causal attention, forward and backward, as ``attend(query, key, value)`` computes it."""
    for shape, dtype in entries:
        query, key, value, grad = (torch.randn(shape, dtype=DTYPES[dtype], device=watch.device) for _ in range(4))
        leaves = tuple(leaf.requires_grad_() for leaf in (query, key, value))
        forward = partial(attend, query, key, value)
        backward = partial(torch.autograd.grad, forward(), leaves, grad, retain_graph=True)
        sequences, heads, tokens, head_size = shape
        yield AttentionProbe(
            dtype=dtype,
            sequences=sequences,
            heads=heads,
            tokens=tokens,
            head_size=head_size,
            forward=watch.time(forward),
            backward=watch.time(backward),
        )


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
    """Returns seconds of one operation on one number: what each operation costs beyond its arithmetic."""
    x = torch.ones(1, device=watch.device)

    def many() -> None:
        for _ in range(operations):
            x.add(1.0)

    return watch.time(many).median_s / operations


def probe_disk(folder: Path, *, size_bytes: int) -> DiskProbe:
    """Write a file through to the disk, then read it again.

    The read comes from the operating system's cache where it cannot be told to forget the file.

    Raises:
        MachineError: the folder cannot be written, or the disk is full.
    """
    block = os.urandom(MIB)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(buffering=0, dir=folder) as stream:  # without a name: a kill leaves nothing
            begin = time.perf_counter()
            for _ in range(size_bytes // MIB):
                stream.write(block)
            os.fsync(stream.fileno())
            write_s = time.perf_counter() - begin
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stream.seek(0)
            begin = time.perf_counter()
            while stream.read(MIB):
                pass
            read_s = time.perf_counter() - begin
            stream.seek(0)
            begin = time.perf_counter()
            hashlib.file_digest(stream, "sha256")
            digest_s = time.perf_counter() - begin
    return DiskProbe(size_bytes=size_bytes, write_s=write_s, read_s=read_s, digest_s=digest_s)
