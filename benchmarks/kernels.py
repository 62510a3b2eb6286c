"""The choices that a training step on a CPU rests on, each beside what was refused, in turn in one process.

    python benchmarks/kernels.py

* Muon: torch's, one matrix at a time, beside ours, stacked by shape, whose iteration multiplies in bf16 or in fp32, on
  the quickstart's 28 matrices (decision 0004).
* The loss on GPT-2's head of 50,257 x 768 over 1,024 tokens, by tokens per chunk (``model/losses.py``), beside torch's
  plain cross-entropy; forward and backward.
* Attention, forward and backward: whole scores beside the fused kernel of torch, by sequence length (``attention.py``).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.model import attention, losses
from trainwright.model import muon as muons
from trainwright.model.muon import Muon
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import native_bf16

ROUNDS = 7


def compare(title: str, contestants: Mapping[str, Callable[[], object]]) -> None:
    """Print the median milliseconds of each, taking turns; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS + 1):
        for name, call in contestants.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    print(title)
    for name, times in seconds.items():
        print(f"  {name:24} {statistics.median(times[1:]) * 1e3:8.1f} ms")


def muon() -> None:
    """The quickstart's matrices: width 192, feed-forward 512, 4 layers."""
    shapes = [(192, 192)] * 16 + [(512, 192)] * 8 + [(192, 512)] * 4
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    ours = Muon(parameters, lr=1e-3, momentum=0.95, weight_decay=0.1)

    def multiplying(native: bool) -> None:
        vars(muons)["native_bf16"] = lambda: native
        ours.step()

    compare(
        f"Muon, one update (this processor {'has' if native_bf16() else 'has no'} bf16 products)",
        {
            "torch.optim.Muon": torch.optim.Muon(parameters, lr=1e-3).step,
            "stacked by shape, bf16": lambda: multiplying(True),
            "stacked by shape, fp32": lambda: multiplying(False),
        },
    )


def loss() -> None:
    """GPT-2's vocabulary and width, bf16 activations over an fp32 head."""
    hidden = torch.randn(1024, 768, dtype=torch.bfloat16, requires_grad=True)
    head = nn.Parameter(torch.randn(50257, 768) * 0.02)
    targets = torch.randint(0, 50257, (1024,))

    def chunked(size: int) -> Callable[[], None]:
        def call() -> None:
            vars(losses)["chunk_tokens"] = lambda vocabulary: size
            losses.linear_cross_entropy(hidden, head, targets)[0].backward()
            hidden.grad = head.grad = None

        return call

    def plain() -> None:
        F.cross_entropy(F.linear(hidden, head.to(hidden.dtype)).float(), targets, reduction="sum").backward()
        hidden.grad = head.grad = None

    sizes = {f"chunks of {size} tokens": chunked(size) for size in (64, 256, 512, 1024)}
    compare("loss over 1,024 tokens", sizes | {"torch's cross_entropy": plain})


def attend() -> None:
    """4,096 tokens, two heads of 96, bf16."""
    for seq in (256, 512, 1024):
        shape = (4096 // seq, 2, seq, 96)
        query, key, value = (torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

        def call(longest: int, q: Tensor = query, k: Tensor = key, v: Tensor = value) -> None:
            vars(attention)["WHOLE_SCORES_TOKENS"] = longest
            attention.attend(q, k, v, None).sum().backward()

        compare(
            f"attention, sequences of {seq}",
            {"whole scores": lambda call=call: call(1 << 20), "torch's fused kernel": lambda call=call: call(0)},  # type: ignore[misc]
        )


def main() -> int:
    """Run them all."""
    keep_freed_memory()
    muon()
    loss()
    attend()
    return 0


if __name__ == "__main__":
    sys.exit(main())
