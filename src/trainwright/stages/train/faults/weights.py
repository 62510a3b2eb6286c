"""Which weights are no numbers: looked at before they are measured or kept, and where a fault is known already."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trainwright.stages.train.trainer import Trainer


def not_finite(trainer: Trainer) -> tuple[str, ...]:
    """Returns the names of weights that hold NaN or infinity on any rank, those of the result among them.

    Waits for the device; all ranks must ask together, and each gets the same answer.
    """
    seen = dict(_judged(trainer))
    if trainer.optimizers.result_is_average:
        with trainer.optimizers.result():
            seen |= {f"{name} (average)": finite for name, finite in _judged(trainer)}
    finite = torch.stack(list(seen.values())).tolist() if seen else []
    here = [name for name, known in zip(seen, finite, strict=True) if not known]
    return tuple(dict.fromkeys(chain.from_iterable(trainer.world.gathered(here))))


def _judged(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    """Yields whether what of each weight lies here is finite, on its device: an extreme is NaN where any of it is."""
    for name, parameter in trainer.network.named_parameters():
        (part,) = trainer.world.local((parameter.detach(),))
        if part.numel():
            yield name, torch.stack(part.aminmax()).isfinite().all()
