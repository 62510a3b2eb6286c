"""First weights: whole tensors by name, one at a time, so that who keeps a part of each never has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor


def normal(
    shapes: Mapping[str, torch.Size], seed: int, deviation: Callable[[str], float], *, norm: float = 1.0
) -> Iterator[tuple[str, Tensor]]:
    """Yields each parameter's first value in fp32: biases are zero, norms ``norm``, all else is normal.

    Args:
        shapes: of all parameters of a network, in its order: one generator draws them in turn.
        seed: of the generator.
        deviation: of a parameter's values, by its name; their mean is 0.
        norm: what norms begin with.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, shape in shapes.items():
        if name.endswith("bias"):
            yield name, torch.zeros(shape)
        elif "norm" in name:
            yield name, torch.full(shape, norm)
        else:
            yield name, torch.randn(shape, generator=generator, dtype=torch.float32).mul_(deviation(name))
