"""How large a model and how many tokens a budget of FLOPs is best spent on.

Training takes ``C = 6 N D`` FLOPs for ``N`` parameters and ``D`` tokens (Kaplan et al., 2020). The laws were fitted to
dense decoders of 44 M to 16 B parameters on English web text, each token seen once, one learning-rate schedule per run;
beyond that they are extrapolations, and losses (nats per token) hold for their data and tokenizer alone. All quantities
may be arrays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import unknown
from trainwright.planner.counts.layouts import Numbers, Values

PETAFLOP_DAY = 8.64e19
FLOPS_PER_PARAMETER_TOKEN = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerLaw:
    """``N = n (C / c)^a`` and ``D = d (C / c)^b`` on the compute-optimal frontier.

    ``source`` is the paper and its table, ``assumes`` the conditions of its validity beyond this module's first lines.
    """

    flops_at: float
    parameters_at: float
    tokens_at: float
    exponents: tuple[float, float]
    """a and b: of parameters and of tokens."""
    source: str
    assumes: str = ""

    def parameters(self, flops: Values) -> Numbers:
        """Returns the parameters of the best model for ``flops``."""
        return np.asarray(self.parameters_at * (np.asarray(flops) / self.flops_at) ** self.exponents[0])

    def tokens(self, flops: Values) -> Numbers:
        """Returns the tokens to train that model on."""
        return np.asarray(self.tokens_at * (np.asarray(flops) / self.flops_at) ** self.exponents[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class LossLaw:
    """``L(N, D) = E + A / N^alpha + B / D^beta`` and the frontier that follows (Hoffmann et al., 2022, equation 4)."""

    irreducible: float
    parameters_factor: float
    tokens_factor: float
    alpha: float
    beta: float
    source: str
    assumes: str = ""

    def loss(self, parameters: Values, tokens: Values) -> Numbers:
        """Returns the expected loss, nats per token of the fit's own data."""
        return np.asarray(
            self.irreducible
            + self.parameters_factor / np.asarray(parameters) ** self.alpha
            + self.tokens_factor / np.asarray(tokens) ** self.beta
        )

    @property
    def _balance(self) -> float:
        ratio = self.alpha * self.parameters_factor / (self.beta * self.tokens_factor)
        return float(ratio ** (1.0 / (self.alpha + self.beta)))

    def parameters(self, flops: Values) -> Numbers:
        """Returns the parameters of the best model for ``flops``."""
        products = np.asarray(flops) / FLOPS_PER_PARAMETER_TOKEN
        return np.asarray(self._balance * products ** (self.beta / (self.alpha + self.beta)))

    def tokens(self, flops: Values) -> Numbers:
        """Returns the tokens to train that model on."""
        return np.asarray(np.asarray(flops) / FLOPS_PER_PARAMETER_TOKEN / self.parameters(flops))

    def flops_for(self, loss: Values) -> Numbers:
        """Returns the least FLOPs that reach ``loss``; infinite at or below the irreducible one."""
        # On the frontier both terms fall with the same power of C.
        power = self.alpha * self.beta / (self.alpha + self.beta)
        one = self.loss(self._balance, 1.0 / self._balance) - self.irreducible
        above = np.asarray(loss, dtype=np.float64) - self.irreducible
        reachable = np.where(above > 0, above, 1.0)
        return np.where(above > 0, FLOPS_PER_PARAMETER_TOKEN * (one / reachable) ** (1.0 / power), np.inf)


Law = PowerLaw | LossLaw
"""A relation between compute, parameters and tokens on the compute-optimal frontier."""
_HOFFMANN = "Hoffmann et al., 2022, arXiv 2203.15556"
LAWS: Mapping[str, Law] = {
    # The ends of the papers' tables fix factors and exponents to three digits, the printed exponents to two.
    "hoffmann-1": PowerLaw(
        flops_at=1.92e19,
        parameters_at=4e8,
        tokens_at=8.0e9,
        exponents=(0.4980, 0.5019),
        source=f"{_HOFFMANN}, approach 1 (minimum over training curves), table 3",
    ),
    "hoffmann-2": PowerLaw(
        flops_at=1.84e19,
        parameters_at=4e8,
        tokens_at=7.7e9,
        exponents=(0.4898, 0.5100),
        source=f"{_HOFFMANN}, approach 2 (IsoFLOP profiles), table A3",
    ),
    "hoffmann-3": LossLaw(
        irreducible=1.6934,
        parameters_factor=406.4,
        tokens_factor=410.7,
        alpha=0.3392,
        beta=0.2849,
        source=f"{_HOFFMANN}, approach 3 (parametric loss), equation 10 with the digits of its source text",
        assumes="a fit that its replication finds not converged (Besiroglu et al., 2024): too many tokens",
    ),
    "besiroglu": LossLaw(
        irreducible=1.8172,
        parameters_factor=482.01,
        tokens_factor=2085.43,
        alpha=0.3478,
        beta=0.3658,
        source="Besiroglu et al., 2024, arXiv 2404.10102: approach 3 refitted to 240 points of Hoffmann's figure 4",
        assumes="standard errors of 0.02 on both exponents",
    ),
    # Kaplan's C_min is at a tiny batch; at the critical batch, which D is for, C is twice that (equation 5.5).
    "kaplan": PowerLaw(
        flops_at=2 * PETAFLOP_DAY,
        parameters_at=1.3e9,
        tokens_at=2e10,
        exponents=(0.73, 0.27),
        source="Kaplan et al., 2020, arXiv 2001.08361, table 6",
        assumes="parameters without embeddings, batch at the critical size, one schedule length for all runs (which "
        "favours large models: Hoffmann et al., 2022, section 2)",
    ),
}
DEFAULT_LAW = "besiroglu"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Optimum:
    """The best spending of ``flops`` under ``law``; ``loss`` is None where the law has none."""

    law: str
    flops: Numbers
    parameters: Numbers
    tokens: Numbers
    loss: Numbers | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OverTraining:
    """A smaller model trained for longer, against the compute-optimal model of the same loss.

    ``flops_ratio`` is what its training costs more, ``parameters_ratio`` what each token that it later serves costs
    less; it pays after ``break_even_tokens`` served (``2 N`` FLOPs a token; Sardana et al., 2024, arXiv 2401.00448),
    infinite where the model is not the smaller one.
    """

    flops: Numbers
    optimal_parameters: Numbers
    flops_ratio: Numbers
    parameters_ratio: Numbers
    break_even_tokens: Numbers


def find_law(name: str) -> Law:
    """Returns the law of that name.

    Raises:
        RecipeError: there is none.
    """
    if name not in LAWS:
        raise RecipeError("unknown scaling law", **unknown(name, LAWS))
    return LAWS[name]


def training_flops(parameters: Values, tokens: Values) -> Numbers:
    """Returns ``6 N D`` (Kaplan et al., 2020, section 2.1): products with weights, without attention."""
    return np.asarray(FLOPS_PER_PARAMETER_TOKEN * np.asarray(parameters) * tokens, dtype=np.float64)


def held_rate_s(parameters: Values, tokens: Values, *, devices: Values, flops_per_s: float) -> Numbers:
    """Returns the seconds of a training if each device held ``flops_per_s``, and nothing else took time."""
    return np.asarray(training_flops(parameters, tokens) / (flops_per_s * np.asarray(devices)), dtype=np.float64)


def compute_optimal(flops: Values, *, law: str = DEFAULT_LAW) -> Optimum:
    """Returns the model and data that ``flops`` are best spent on."""
    chosen = find_law(law)
    parameters, tokens = chosen.parameters(flops), chosen.tokens(flops)
    loss = chosen.loss(parameters, tokens) if isinstance(chosen, LossLaw) else None
    return Optimum(law=law, flops=np.asarray(flops, dtype=np.float64), parameters=parameters, tokens=tokens, loss=loss)


def optimal_for(parameters: Values, *, law: str = DEFAULT_LAW) -> Optimum:
    """Returns the budget for which a model of ``parameters`` is the best one, and its tokens."""
    chosen = find_law(law)
    if isinstance(chosen, PowerLaw):
        flops = chosen.flops_at * (np.asarray(parameters) / chosen.parameters_at) ** (1.0 / chosen.exponents[0])
    else:
        # N is a power of C: two points give it.
        low, high = np.log(chosen.parameters(1e18)), np.log(chosen.parameters(1e24))
        flops = np.exp(np.log(1e18) + (np.log(parameters) - low) * np.log(1e6) / (high - low))
    return compute_optimal(np.asarray(flops), law=law)


def over_training(parameters: Values, tokens: Values) -> OverTraining:
    """Returns the cost of training a model away from the frontier."""
    chosen = LAWS[DEFAULT_LAW]
    assert isinstance(chosen, LossLaw)
    flops = training_flops(parameters, tokens)
    best = chosen.flops_for(chosen.loss(parameters, tokens))
    best_parameters = chosen.parameters(best)
    saved = 2.0 * (best_parameters - parameters)
    return OverTraining(
        flops=flops,
        optimal_parameters=best_parameters,
        flops_ratio=flops / best,
        parameters_ratio=np.asarray(parameters) / best_parameters,
        break_even_tokens=np.where(saved > 0, (flops - best) / np.where(saved > 0, saved, 1.0), np.inf),
    )
