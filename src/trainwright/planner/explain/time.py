"""Formulas of a step's phases; see ``planner.explain.registry``.

A phase is linear in its parts, so that a part is what the phase is longer by for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.kernels import KINDS, Kind
from trainwright.planner.counts.ranks import expert_tp, fullest, processors_left
from trainwright.planner.counts.work import Work
from trainwright.planner.explain.formula import Explanation, Term, first
from trainwright.planner.forecast.communication.collectives import Fabric, placement
from trainwright.planner.forecast.communication.dispatch import copies, expected_ranks, token_bytes
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.memory.offload import offloaded
from trainwright.planner.forecast.memory.states import case_of
from trainwright.planner.forecast.padded import padded_run
from trainwright.planner.forecast.shares import COMPUTE, COPIED, SENT, bound_by, exposed, step_without
from trainwright.planner.forecast.time.passes import passes
from trainwright.planner.plan.cluster import Planned
from trainwright.planner.rates.catalogue import Catalogue, Rates, factors

_PHASES = {
    "forward": "kernels of the forward pass",
    "backward": "kernels of the backward pass, recomputation included",
    "communicate": "collectives that nothing hides",
    "update": "the optimizer",
    "host": "waiting for the host to launch kernels",
    "idle": "the pipeline's bubble, which a plan and a run count as communicate",
}
_KINDS = {
    "p": "matrix products of the blocks",
    "a": "attention",
    "b": "memory traffic between the products",
    "h": "the output head and the loss",
}
_SENT = dict(zip((*SENT, COPIED), "tcepsgma", strict=True))
"""The symbol of each kind of communication."""
_FIT = "fit: benchmarks/fit_time.py"


def _step(planned: Planned) -> Explanation:
    step = planned.choice.forecast.step
    terms = tuple(Term(name, first(getattr(step, name)), "s", meaning) for name, meaning in _PHASES.items())
    about = "one step, which its phases partition"
    return Explanation("time.step", about, " + ".join(_PHASES), terms, first(step.total_s), "s")


def _counted(forecast: Forecast) -> tuple[Work, Rates]:
    """Returns the counted work and the rates that a formula puts together.

    Raises:
        RecipeError: the plan rests on measurements of shapes, which no formula has.
    """
    if not isinstance(forecast.source, Catalogue):
        raise RecipeError("this part of the plan was measured, not computed", where=forecast.run.cluster.device.name)
    run = padded_run(forecast.run, forecast.layouts)
    return forecast.source.work(run, forecast.layouts), forecast.source.rates(forecast.run)


def _left(forecast: Forecast) -> tuple[Term, ...]:
    """Returns the share of processors that sending to experts leaves to others; nothing where it leaves all."""
    left = first(processors_left(forecast.run, forecast.layouts))
    meaning = "share of the processors that sending to experts leaves, while both run"
    return () if left == 1.0 else (Term("k", left, "", meaning),)


def _kernels(phase: str) -> Callable[[Planned], Explanation]:
    """Returns the explainer of a pass: the sum of its kinds of kernels, over all micro batches."""

    def explained(planned: Planned) -> Explanation:
        forecast = bound_by(planned.choice.forecast, lambda step: step.forward if phase == "forward" else step.backward)
        whole = first(getattr(forecast.step, phase))
        parts = {
            symbol: whole - first(getattr(step_without(forecast, COMPUTE[kind]), phase))
            for symbol, kind in _KINDS.items()
        }
        # The rank with the head has fewer blocks; what it has more of all is the head's.
        parts["h"] = whole - sum(value for symbol, value in parts.items() if symbol != "h")
        terms = tuple(Term(symbol, parts[symbol], "s", kind) for symbol, kind in _KINDS.items())
        about = f"kernels of the {phase} pass, all {first(forecast.layouts.micro_batches):,.0f} micro batches"
        return Explanation(f"time.{phase}", about, " + ".join(_KINDS), terms, whole, "s")

    return explained


def _forward_s(forecast: Forecast, kind: Kind) -> float:
    """Returns the seconds that the forward passes of a step spend on one kind of work."""
    return first(step_without(forecast, *(each for each in KINDS if each != kind)).forward)


def _products(planned: Planned) -> Explanation:
    """Returns the formula of the forward pass's matrix products: operations over the rate reached."""
    forecast = planned.choice.forecast
    (work, rate), peak, left = _counted(forecast), forecast.peak_flops_per_s, _left(forecast)
    terms = (
        Term("m", first(forecast.layouts.micro_batches), "", "micro batches of a rank"),
        Term("c", first(rate.compute), "", "time of this software's kernels against all software's, fitted"),
        Term("F", first(work.products_s) * peak, "FLOP", "of a rank's products, one micro batch"),
        Term("U", first(work.unaligned_s) * peak, "FLOP", "of those whose sizes are no multiple of 128 bytes"),
        Term("u", first(rate.unaligned), "", "speed of those"),
        Term("P", peak, "FLOP/s", "dense peak of the device"),
        Term("r", first(rate.products), "", "share of the peak reached: the product of what is named below"),
        Term("w", first(work.busy), "", "share of the tensor cores that whole waves of tiles keep busy"),
        Term("x", first(rate.tiles), "", "how much of that libraries lose, fitted"),
        Term("o", first(rate.operands), "", "share of B that nothing hides, fitted"),
        Term("B", first(work.operands_s), "s", "moving the operands once"),
        *left,
    )
    about = "matrix products of the forward pass"
    formula = f"m × c × ((F + U / u - U) / (P × r{' × k' if left else ''} × w ^ x) + o × B)"
    source = f"NVIDIA, Matrix Multiplication Background User's Guide (tiles and waves); {_FIT}"
    value, details = _forward_s(forecast, "products"), _of_products(forecast)
    return Explanation("time.products", about, formula, terms, value, "s", source=source, details=details)


def _of_products(forecast: Forecast) -> tuple[Term, ...]:
    """Returns the numbers that a product's share of the peak is the product of."""
    assert isinstance(forecast.source, Catalogue)
    parts = factors(forecast.run, forecast.source.efficiency)["products"]
    measured = "what products alone were measured to reach on the device, against its generation"
    return tuple(Term("", each.value, "", f"{each.name}, {measured if each.fixed else 'fitted'}") for each in parts)


def _attention(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    (work, rate), left = _counted(forecast), _left(forecast)
    terms = (
        Term("m", first(forecast.layouts.micro_batches), "", "micro batches of a rank"),
        Term("c", first(rate.compute), "", "time of the stack's kernels, fitted"),
        Term("A", first(work.attention_s), "s", "what the mask leaves, at the peak"),
        Term("z", first(work.thin_heads), "", "against heads of 128, which r is for"),
        Term("r", first(rate.attention), "", "share of the peak reached, fitted"),
        Term("h", first(rate.ramp), "tokens", "sequence that reaches half of that, fitted"),
        Term("a", first(work.short_s), "s", "fused attention's part of A, for each token"),
        Term("s", first(rate.scores), "", "against what is counted, fitted"),
        Term("S", first(work.scores_s), "s", "moving written scores, a third of both passes"),
        Term("w", first(rate.bandwidth), "", "share of the memory's rate reached"),
        *left,
    )
    about, value = "attention of the forward pass", _forward_s(forecast, "attention")
    formula = f"m × c × ((z × A + h × a) / {'(r × k)' if left else 'r'} + s × S / w)"
    return Explanation("time.attention", about, formula, terms, value, "s", source=_FIT)


def _communicate(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    terms = tuple(Term(_SENT[share.name], share.seconds, "s", share.name) for share in exposed(forecast))
    about, formula = "collectives that nothing hides, over all micro batches", " + ".join(term.symbol for term in terms)
    value, details = first(forecast.step.communicate), _routed(planned)
    source = "alpha-beta over two tiers of links: planner/forecast/communication (collectives.py, dispatch.py)"
    return Explanation("time.communicate", about, formula or "0", terms, value, "s", details=details, source=source)


def _routed(planned: Planned) -> tuple[Term, ...]:
    """Returns the copies and bytes sent to experts, and the hidden seconds; nothing where they are not divided."""
    plan, scenario, forecast = planned.plan, planned.scenario, planned.choice.forecast
    ep = plan.parallel.ep
    if plan.model.experts is None or ep == 1:
        return ()
    model, experts = scenario.run.transformer, plan.model.experts
    dispatch, fabric = scenario.run.stack.dispatch, Fabric.of(plan.cluster)
    group = placement(domain=fabric.domain, tp=expert_tp(model, forecast.layouts), ep=ep, dp_shard=ep).ep
    inside, between = map(first, copies(experts, group, hierarchical=dispatch.hierarchical))
    there, back = token_bytes(model, plan.workload, dispatch)
    bound = "" if experts.groups == 1 else f", of {experts.active_groups} of {experts.groups} groups at most"
    hidden = passes(forecast.kernels, forecast.sent, forecast.layouts, forecast.exposure).hidden
    hidden_s = first(forecast.layouts.micro_batches * hidden)
    way = "one a node, then one a rank" if dispatch.hierarchical else "one for each expert"
    load = first(fullest(model, plan.workload, forecast.layouts))
    details = (
        Term("", first(expected_ranks(experts, float(ep))), "", f"ranks of {ep} that a token goes to{bound}"),
        Term("", inside, "", f"copies of a token over links inside the node: {way}"),
        Term("", between, "", "copies of a token over the network"),
        Term("", there, "bytes", "of a copy on its way to its experts"),
        Term("", back, "bytes", "of a copy on its way back"),
        Term("", load, "", "load of the fullest rank over the mean, which all wait for"),
        Term("", hidden_s, "s", "sent to experts and stages while the other direction's micro batch is computed"),
    )
    return details if hidden_s else details[:-1]


def _update(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    (work, rate), device = _counted(forecast), planned.plan.cluster.device
    whole, orthogonal_s = first(forecast.step.update), work.orthogonal_s / rate.head
    terms = (
        Term("u", first(rate.update), "", "traffic against one fused kernel's, fitted"),
        Term("B", first(work.update_s) * device.bytes_per_s, "bytes", "read and written once by one fused kernel"),
        Term("M", device.bytes_per_s, "bytes/s", "the memory's rate"),
        Term("w", first(rate.bandwidth), "", "share of it that streams reach"),
        Term("n", first(orthogonal_s), "s", "products that make Muon's updates orthogonal"),
        Term("o", whole - first(step_without(forecast).update), "s", "moving what is offloaded"),
    )
    about, formula = "the optimizer's update", "u × B / (M × w) + n + o"
    return Explanation("time.update", about, formula, terms, whole, "s", details=_streamed(planned))


def _streamed(planned: Planned) -> tuple[Term, ...]:
    """Returns the traffic of the drives where the optimizer's state lives on NVMe."""
    node, layouts = planned.plan.cluster.node, planned.choice.forecast.layouts
    if not layouts.offloads_to_nvme[0]:
        return ()
    case = case_of(planned.scenario.run.transformer, planned.plan.workload, layouts, planned.scenario.run.stack.memory)
    state = node.devices * float(offloaded(case).moved.optimizer.max())
    return (
        Term("", state, "bytes", "of a node, read from and written to NVMe once a step"),
        Term("", node.nvme_read_bytes_per_s or 0.0, "bytes/s", "that its drives read"),
        Term("", node.nvme_write_bytes_per_s or 0.0, "bytes/s", "that they write"),
    )


def _idle(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    value, bubble, stages = first(forecast.step.idle), first(forecast.exposure.bubble), first(forecast.layouts.pp)
    alone = ", with what passes that run alone do not hide" if forecast.layouts.has("schedule", "dualpipe")[0] else ""
    beyond = f"beyond the work and the sends of one rank, the schedule of {stages:,.0f} stages played out{alone}"
    terms = (
        Term("w", value / bubble, "s", beyond),
        Term("b", bubble, "", "of the schedule's bubble, what is really idle, fitted"),
    )
    source = f"planner/forecast/time/bubble.py, planner/forecast/time/pipeline.py; {_FIT}"
    return Explanation("time.idle", "the pipeline's bubble", "b × w", terms, value, "s", source=source)


def _flops(planned: Planned) -> Explanation:
    plan = planned.plan
    counted = count_flops(plan.model, sequences=1, sequence_tokens=plan.workload.sequence_tokens)
    terms = (
        Term("l", float(counted.linear), "FLOP", "matrices of the blocks"),
        Term("a", float(counted.attention), "FLOP", "scores and values, in full"),
        Term("h", float(counted.head), "FLOP", "output head"),
        Term("s", float(counted.stem), "FLOP", "stem: pixels need no gradient"),
    )
    about = f"one sequence of {plan.workload.sequence_tokens:,} tokens, forward and backward"
    source = "as torch's FlopCounterMode counts; attention in full: Chowdhery et al., 2022, appendix B"
    value = float(counted.training)
    return Explanation("flops", about, "3 × (l + a + h) + 2 × s", terms, value, "FLOP", source=source)


def _mfu(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    terms = (
        Term("F", forecast.model_flops_per_token, "FLOP", "of the model for one token (flops)"),
        Term("B", float(forecast.run.workload.step_tokens), "tokens", "of a step"),
        Term("t", first(forecast.step_s), "s", "a step (time.step)"),
        Term("d", first(forecast.layouts.devices), "", "devices"),
        Term("P", forecast.peak_flops_per_s, "FLOP/s", "dense peak of one"),
    )
    about, source = "model FLOPs utilisation", "Chowdhery et al., 2022, arXiv 2204.02311, appendix B"
    return Explanation("mfu", about, "F × B / (t × d × P)", terms, first(forecast.mfu), "", source=source)


TIME: Mapping[str, Callable[[Planned], Explanation]] = {
    "time.step": _step,
    "time.forward": _kernels("forward"),
    "time.backward": _kernels("backward"),
    "time.products": _products,
    "time.attention": _attention,
    "time.communicate": _communicate,
    "time.update": _update,
    "time.idle": _idle,
    "flops": _flops,
    "mfu": _mfu,
}
