"""The best use of a budget: each scaling law's answer, the critical batch, and the run that it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.core.frozen import dataclass
from trainwright.core.units import format_count, format_seconds
from trainwright.planner.cost.batches import critical_batch_tokens, critical_batch_tokens_at
from trainwright.planner.cost.scaling_laws import (
    DEFAULT_LAW,
    LAWS,
    compute_optimal,
    optimal_for,
    over_training,
)
from trainwright.render.numbers import share
from trainwright.render.page import Page
from trainwright.render.plans.cluster import verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.planner.plan.cluster import Planned

FITTED = (44e6, 16e9)
"""Parameters of the models that the laws were fitted to (``planner.cost.scaling_laws``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The answer of one scaling law; ``loss`` is in nats per token of the law's own data."""

    law: str
    flops: float
    parameters: float
    tokens: float
    loss: float | None
    source: str
    assumes: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """A guidance for the batch, in tokens, and its source."""

    tokens: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """The best use of a budget.

    Attributes:
        title: the budget in words.
        laws: the answer of each law.
        batches: the critical batch by each source.
        over_training: what more tokens than the best number cost; None where no number was asked for.
        run: the plan on a cluster; None where none was asked for.
    """

    title: str
    laws: Sequence[Best]
    batches: Sequence[Batch]
    over_training: dict[str, Any] | None
    run: Planned | None

    @property
    def best(self) -> Best:
        """Returns the answer of the default law."""
        return next(law for law in self.laws if law.law == DEFAULT_LAW)


def scaling_document(scaling: Scaling) -> dict[str, Any]:
    """Returns the JSON document of a budget."""
    return {
        "laws": scaling.laws,
        "law": DEFAULT_LAW,
        "batch": scaling.batches,
        "over_training": scaling.over_training,
        "plan": None if scaling.run is None else scaling.run.plan,
    }


def show(scaling: Scaling, page: Page, *, following: str = "") -> None:
    """Shows the default law's answer, then all laws, the batch and the run with the command that comes after it."""
    best = scaling.best
    page.heading(f"{scaling.title}: {format_count(best.parameters)} parameters, {format_count(best.tokens)} tokens")
    _show_laws(scaling.laws, page)
    if scaling.over_training is not None:
        page.line()
        page.line(scaling.over_training["text"])
    page.line()
    page.table(("critical batch", "is"), [(format_count(batch.tokens), batch.source) for batch in scaling.batches])
    if scaling.run is not None:
        page.line()
        _show_run(scaling.run, page)
        page.line()
        page.line(f"next: {following}")


def laws_for(*, flops: float | None = None, parameters: float | None = None) -> list[Best]:
    """Returns the answer of each law for a budget of FLOPs, or for a model of that many parameters."""
    rows = []
    for name, law in LAWS.items():
        optimum = optimal_for(parameters or 0.0, law=name) if flops is None else compute_optimal(flops, law=name)
        rows.append(
            Best(
                law=name,
                flops=float(optimum.flops),
                parameters=float(optimum.parameters),
                tokens=float(optimum.tokens),
                loss=None if optimum.loss is None else float(optimum.loss),
                source=law.source,
                assumes=law.assumes,
            )
        )
    return rows


def _show_laws(laws: Sequence[Best], page: Page) -> None:
    """Shows each law's answer, and what must hold for it."""
    page.table(
        ("law", "parameters", "tokens", "tokens/parameter", "FLOPs", "loss"),
        [
            (
                law.law,
                format_count(law.parameters),
                format_count(law.tokens),
                f"{law.tokens / law.parameters:.1f}",
                f"{law.flops:.3g}",
                "" if law.loss is None else f"{law.loss:.3f}",
            )
            for law in laws
        ],
    )
    page.line()
    for law in laws:
        page.line(f"{law.law}: {law.source}{f'; assumes {law.assumes}' if law.assumes else ''}")
    page.line("all: C = 6 N D, dense decoders on English text, each token seen once, no schedule cut short")
    if any(not FITTED[0] <= law.parameters <= FITTED[1] for law in laws):
        low, high = map(format_count, FITTED)
        page.line(f"extrapolated: they were fitted to models of {low} to {high} parameters")


def critical_batches(tokens: float, loss: float | None) -> list[Batch]:
    """Returns two papers' critical batch, by the tokens of a run and by the loss at its end."""
    run = f"for a run of {format_count(tokens)}: beyond it, 20% more steps than in proportion"
    batches = [
        Batch(tokens=float(critical_batch_tokens(tokens)), source=f"{run} (Zhang et al., 2024, arXiv 2410.21676)")
    ]
    if loss is not None:
        at = f"at a loss of {loss:.2f}: both steps and tokens are twice the least"
        source = f"{at} (Kaplan et al., 2020, arXiv 2001.08361, equation 1.4; WebText2)"
        batches.append(Batch(tokens=float(critical_batch_tokens_at(loss)), source=source))
    return batches


def over_training_document(parameters: float, tokens: float) -> dict[str, Any]:
    """Returns what it costs to train a model on that many tokens, beside the best model of the same loss."""
    excess = over_training(parameters, tokens)
    ratio, size = float(excess.flops_ratio), float(excess.parameters_ratio)
    even = float(excess.break_even_tokens)
    text = (
        f"on {format_count(tokens)} tokens it takes {ratio:.2f} x the FLOPs of the best model of the same loss, which "
        f"has {format_count(float(excess.optimal_parameters))} parameters"
    )
    if size < 1:
        text += f"; being smaller, it pays after {format_count(even)} tokens served"
    return {
        "flops_ratio": ratio,
        "parameters_ratio": size,
        "optimal_parameters": float(excess.optimal_parameters),
        "break_even_tokens": even,
        "text": text,
    }


def _show_run(run: Planned, page: Page) -> None:
    plan = run.plan
    model = run.scenario.run.transformer
    page.line(f"on {plan.cluster.devices:,} {plan.cluster.device.name}: {verdict(plan)}")
    told = (plan.roomy or plan).estimate
    enough = "" if plan.estimate.fits else "with memory enough "
    low, high = told.seconds.low, told.seconds.high
    page.line(
        f"{enough}between {format_seconds(low)} and {format_seconds(high)}, as {model.layers} layers of width "
        f"{model.width:,}; MFU {share(told.mfu)}"
    )
