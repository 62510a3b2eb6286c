"""``plan --compute``, ``--budget`` and ``--params``: which model and how much data a budget is best spent on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.cli.output import Output
from trainwright.cli.plan_question import OF_PLANS, OF_SERVING, count, refuse
from trainwright.core.errors import RecipeError
from trainwright.core.money import format_usd, parse_usd
from trainwright.core.units import format_count, format_seconds

if TYPE_CHECKING:
    from trainwright.planner.cluster_plan import Planned

FITTED = (44e6, 16e9)
"""Parameters of the models that the laws were fitted to (``planner.scaling_laws``)."""
DEFAULT_ON = "8xh100-sxm"
"""Where a budget of dollars is spent, unless the user says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """What one scaling law says; ``loss`` is in nats per token of the law's own data."""

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


def run(args: argparse.Namespace) -> int:
    """Print what the laws say, how large a batch may be, and on given machines time and price."""
    from trainwright.planner.scaling_laws import DEFAULT_LAW

    asked = [name for name in ("compute", "budget", "params") if getattr(args, name) is not None]
    refuse(
        args, (*OF_PLANS, *OF_SERVING, "inference"), what="a budget has no use for this", fix="plan the model itself"
    )
    if len(asked) > 1:
        raise RecipeError("one budget at a time", seen=" and ".join(f"--{name}" for name in asked))
    if args.model is not None or args.inputs:
        raise RecipeError("a budget chooses the model", where=f"--{asked[0]}", fix="leave the model out")
    output, found = Output.of(args), None
    if args.budget is not None:
        dollars = parse_usd(args.budget, where="--budget")
        if dollars <= 0:
            raise RecipeError("must be above zero", where="--budget", seen=repr(args.budget))
        affordable, found = _afforded(args, dollars)
        laws = _laws(flops=affordable)
        title = f"{format_usd(dollars)} buy {affordable:.3g} FLOPs of training"
    elif args.compute is not None:
        flops = float(count(args.compute, where="--compute"))
        laws, title = _laws(flops=flops), f"{flops:.3g} FLOPs of training"
    else:
        parameters = float(count(args.params, where="--params"))
        laws, title = _laws(parameters=parameters), "compute-optimal"
    best = next(law for law in laws if law.law == DEFAULT_LAW)
    given = None if args.params is None or args.tokens is None else float(count(args.tokens, where="--tokens"))
    if found is None and args.on is not None:
        found = _planned(args, best.parameters, best.tokens if given is None else given)
    over = None if given is None else _over_training(best.parameters, given)
    batches = _batches(best.tokens if given is None else given, best.loss if given is None else None)
    payload: dict[str, Any] = {"laws": laws, "law": DEFAULT_LAW, "batch": batches, "over_training": over}
    payload["plan"] = None if found is None else found.plan

    def text() -> None:
        output.heading(f"{title}: {format_count(best.parameters)} parameters, {format_count(best.tokens)} tokens")
        show_laws(laws, output)
        if over is not None:
            output.line()
            output.line(over["text"])
        output.line()
        output.table(("critical batch", "is"), [(format_count(batch.tokens), batch.source) for batch in batches])
        if found is not None:
            output.line()
            _show_run(found, output)

    output.result({"scaling": payload}, text)
    return 0


def _laws(*, flops: float | None = None, parameters: float | None = None) -> list[Best]:
    from trainwright.planner.scaling_laws import LAWS, compute_optimal, optimal_for

    rows = []
    for name, law in LAWS.items():
        found = optimal_for(parameters or 0.0, law=name) if flops is None else compute_optimal(flops, law=name)
        rows.append(
            Best(
                law=name, flops=float(found.flops), parameters=float(found.parameters), tokens=float(found.tokens),
                loss=None if found.loss is None else float(found.loss), source=law.source, assumes=law.assumes,
            )
        )  # fmt: skip
    return rows


def show_laws(laws: list[Best], output: Output) -> None:
    """Each law's answer, and what must hold for it."""
    output.table(
        ("law", "parameters", "tokens", "tokens/parameter", "FLOPs", "loss"),
        [
            (law.law, format_count(law.parameters), format_count(law.tokens), f"{law.tokens / law.parameters:.1f}",
             f"{law.flops:.3g}", "" if law.loss is None else f"{law.loss:.3f}")
            for law in laws
        ],
    )  # fmt: skip
    output.line()
    for law in laws:
        output.line(f"{law.law}: {law.source}{f'; assumes {law.assumes}' if law.assumes else ''}")
    output.line("all: C = 6 N D, dense decoders on English text, each token seen once, no schedule cut short")
    if any(not FITTED[0] <= law.parameters <= FITTED[1] for law in laws):
        low, high = map(format_count, FITTED)
        output.line(f"extrapolated: they were fitted to models of {low} to {high} parameters")


def _batches(tokens: float, loss: float | None) -> list[Batch]:
    """Two papers' critical batch, by the tokens of a run and by the loss at its end."""
    from trainwright.planner.scaling_laws import critical_batch_tokens, critical_batch_tokens_at

    run = f"for a run of {format_count(tokens)}: beyond it, 20% more steps than in proportion"
    found = [Batch(tokens=float(critical_batch_tokens(tokens)), source=f"{run} (Zhang et al., 2024, arXiv 2410.21676)")]
    if loss is not None:
        at = f"at a loss of {loss:.2f}: both steps and tokens are twice the least"
        source = f"{at} (Kaplan et al., 2020, arXiv 2001.08361, equation 1.4; WebText2)"
        found.append(Batch(tokens=float(critical_batch_tokens_at(loss)), source=source))
    return found


def _over_training(parameters: float, tokens: float) -> dict[str, Any]:
    from trainwright.planner.scaling_laws import over_training

    found = over_training(parameters, tokens)
    ratio, size = float(found.flops_ratio), float(found.parameters_ratio)
    even = float(found.break_even_tokens)
    text = (
        f"on {format_count(tokens)} tokens it takes {ratio:.2f} x the FLOPs of the best model of the same loss, which "
        f"has {format_count(float(found.optimal_parameters))} parameters"
    )
    if size < 1:
        text += f"; being smaller, it pays after {format_count(even)} tokens served"
    return {
        "flops_ratio": ratio, "parameters_ratio": size, "optimal_parameters": float(found.optimal_parameters),
        "break_even_tokens": even, "text": text,
    }  # fmt: skip


def _afforded(args: argparse.Namespace, usd: float) -> tuple[float, Planned]:
    from trainwright.planner.typical import afforded

    found = afforded(usd, on=args.on or DEFAULT_ON, **_question(args))
    return found.flops, found.found


def _planned(args: argparse.Namespace, parameters: float, tokens: float) -> Planned:
    from trainwright.planner.typical import plan_of

    return plan_of(parameters, tokens, on=args.on, **_question(args))


def _question(args: argparse.Namespace) -> dict[str, Any]:
    """What else the arguments say of the run."""
    from trainwright.cli.plan_question import given

    return {name: value for name, value in given(args).items() if name != "tokens"}


def _show_run(found: Planned, output: Output) -> None:
    from trainwright.cli.plan_cluster import verdict

    plan = found.plan
    model, machines = found.scenario.transformer, plan.cluster
    output.line(f"on {plan.cluster.devices:,} {plan.cluster.device.name}: {verdict(plan)}")
    low, high = plan.estimate.seconds.low, plan.estimate.seconds.high
    output.line(
        f"between {format_seconds(low)} and {format_seconds(high)}, as {model.layers} layers of width {model.width:,}; "
        f"MFU {plan.estimate.mfu:.1%}; see it all: trainwright plan --model layers={model.layers},width={model.width},"
        f"heads={model.heads},vocabulary={model.vocabulary} --tokens {plan.workload.total_tokens} "
        f"--on {machines.nodes}x{machines.node.devices}x{machines.device.name}"
    )
