"""From logits to the next token, with random numbers that belong to the request and not to the batch.

Shape legend: ``vocabulary``, ``kept`` (tokens that may be drawn).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.runtime.rng import derive
from trainwright.spec.generation import Sampling

CANDIDATES = 256


def uniform(*, seed: int, choice: int, position: int) -> float:
    """Returns a number in [0, 1), uniform over counters and a function of them alone: 53 bits of a hash.

    The text of a request therefore never depends on what else is generated at the same time.
    """
    return (derive(seed, choice, position) >> 11) / 2**53


def sample(logits: Float[Tensor, " vocabulary"], sampling: Sampling, *, position: int) -> int:
    """Returns the next token, by inverting the distribution function at the request's random number.

    Args:
        logits: of one sequence, fp32.
        sampling: the request's settings.
        position: where the token will stand: the counter of the random number.
    """
    if sampling.temperature == 0:
        return int(logits.argmax())
    probabilities = ((logits - logits.max()) / sampling.temperature).softmax(dim=-1, dtype=torch.float64)
    drawn = uniform(seed=sampling.seed, choice=sampling.choice, position=position)
    if sampling.top_p == 1:
        return _invert(probabilities.cumsum(dim=-1), drawn)
    probabilities, tokens = _likeliest(probabilities, sampling.top_p)
    mass = probabilities.cumsum(dim=-1)
    # The nucleus ends with the token that reaches top_p.
    nucleus = mass[: int(torch.searchsorted(mass, sampling.top_p)) + 1]
    return int(tokens[_invert(nucleus, drawn)])


def _invert(mass: Float[Tensor, " kept"], drawn: float) -> int:
    """Returns the index whose share of the cumulated ``mass`` the number in [0, 1) falls into."""
    return min(int(torch.searchsorted(mass, drawn * float(mass[-1]), right=True)), len(mass) - 1)


def _likeliest(
    probabilities: Float[Tensor, " vocabulary"], top_p: float
) -> tuple[Float[Tensor, " kept"], Int[Tensor, " kept"]]:
    """Probabilities in falling order with their tokens, at least as many as reach ``top_p`` together.

    A few candidates nearly always do, and finding them takes a tenth of the time of sorting everything.
    """
    values, tokens = probabilities.topk(min(CANDIDATES, len(probabilities)))
    if float(values.sum()) < top_p:
        values, tokens = probabilities.sort(descending=True)
    return values, tokens
