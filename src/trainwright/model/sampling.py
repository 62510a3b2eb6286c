"""From logits to the next token, with random numbers that belong to the request and not to the batch.

Shape legend: ``vocabulary``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trainwright.runtime.rng import derive


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How a text is continued.

    ``temperature`` 0 takes the likeliest token; ``top_p`` < 1 samples from the smallest set of likeliest tokens whose
    probabilities sum to at least that much (Holtzman et al., 2020). ``stop``: texts that end the answer and are left
    out of it. ``choice`` numbers several answers to one prompt, so that they differ under one ``seed``.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    stop: tuple[str, ...] = ()


def uniform(*, seed: int, choice: int, position: int) -> float:
    """A number in [0, 1), uniform over counters and a function of them alone: 53 bits of a hash.

    The text of a request therefore never depends on what else is generated at the same time.
    """
    return (derive(seed, choice, position) >> 11) / 2**53


def sample(logits: Float[Tensor, " vocabulary"], sampling: Sampling, *, position: int) -> int:
    """The next token, by inverting the distribution function at the request's random number.

    Args:
        logits: of one sequence, fp32.
        sampling: the request's settings.
        position: where the token will stand: the counter of the random number.
    """
    if sampling.temperature == 0:
        return int(logits.argmax())
    probabilities = ((logits - logits.max()) / sampling.temperature).softmax(dim=-1, dtype=torch.float64)
    order = None
    last = len(probabilities) - 1
    if sampling.top_p < 1:
        probabilities, order = probabilities.sort(descending=True, stable=True)
    mass = probabilities.cumsum(dim=-1)
    if order is not None:  # the nucleus ends with the token that reaches top_p
        last = min(int(torch.searchsorted(mass, sampling.top_p)), last)
    drawn = uniform(seed=sampling.seed, choice=sampling.choice, position=position) * float(mass[last])
    index = min(int(torch.searchsorted(mass, drawn, right=True)), last)
    return index if order is None else int(order[index])
