"""Formulas of a step's phases; see ``planner.explain.registry``.

A phase is linear in its parts, so that a part is what the phase is longer by for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.experts import fullest, processors_left
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.kernels import KINDS
from trainwright.planner.counts.ranks import expert_tp
from trainwright.planner.counts.work import Work
from trainwright.planner.explain.formula import Explanation, Term, first
from trainwright.planner.forecast.communication.collectives import Fabric, placement
from trainwright.planner.forecast.communication.dispatch import copies, expected_ranks, token_bytes
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.memory.offload import offloaded
from trainwright.planner.forecast.memory.states import case_of
from trainwright.planner.forecast.time.passes import passes
from trainwright.planner.plan.cluster import Planned
from trainwright.planner.plan.shares import COMPUTE, bound_by, exposed, step_without
from trainwright.planner.rates.catalogue import Catalogue, Rates


def _step(planned: Planned) -> Explanation:
    step = planned.choice.forecast.step
    meanings = {
        "forward": "kernels of the forward pass",
        "backward": "kernels of the backward pass, recomputation included",
        "communicate": "collectives that nothing hides",
        "update": "the optimizer",
        "host": "waiting for the host to launch kernels",
        "idle": "the pipeline's bubble",
    }
    terms = tuple(Term(name, first(getattr(step, name)), "s", meaning) for name, meaning in meanings.items())
    return Explanation(
        "time.step", "one step, which its phases partition", " + ".join(meanings), terms, first(step.total_s), "s"
    )


def _counted(forecast: Forecast) -> tuple[Work, Rates]:
    """Returns the counted work and the rates that a formula puts together.

    Raises:
        RecipeError: the plan rests on measurements of shapes, which no formula has.
    """
    if not isinstance(forecast.source, Catalogue):
        raise RecipeError("this part of the plan was measured, not computed", where=forecast.cluster.device.name)
    return forecast.source.work(forecast.run, forecast.layouts), forecast.source.rates(forecast.run)


def _left(forecast: Forecast) -> tuple[Term, ...]:
    """Returns the share of processors that sending to experts leaves to others; nothing where it leaves all."""
    left = first(processors_left(forecast.run, forecast.layouts))
    if left == 1.0:
        return ()
    meaning = "share of the processors that sending to experts leaves, while both run"
    return (Term("k", left, "", meaning),)


_SYMBOLS = {
    "p": "matrix products of the blocks",
    "a": "attention",
    "b": "memory traffic between the products",
    "h": "the output head and the loss",
}


def _kernels(phase: str) -> Callable[[Planned], Explanation]:
    """Returns the explainer of a pass: the sum of its kinds of kernels, over all micro batches."""

    def explained(planned: Planned) -> Explanation:
        forecast = bound_by(planned.choice.forecast, lambda step: step.forward if phase == "forward" else step.backward)
        whole = first(getattr(forecast.step, phase))
        parts = {
            symbol: whole - first(getattr(step_without(forecast, COMPUTE[kind]), phase))
            for symbol, kind in _SYMBOLS.items()
        }
        # The rank with the head has fewer blocks; what it has more of all is the head's.
        parts["h"] = whole - sum(value for symbol, value in parts.items() if symbol != "h")
        terms = [Term(symbol, parts[symbol], "s", kind) for symbol, kind in _SYMBOLS.items()]
        about = f"kernels of the {phase} pass, all {first(forecast.layouts.micro_batches):,.0f} micro batches"
        return Explanation(f"time.{phase}", about, " + ".join(_SYMBOLS), tuple(terms), whole, "s")

    return explained


def _products(planned: Planned) -> Explanation:
    """Returns the formula of the forward pass's matrix products: operations over the rate reached."""
    forecast = planned.choice.forecast
    work, rate = _counted(forecast)
    others = [kind for kind in KINDS if kind != "products"]
    value, left = first(step_without(forecast, *others).forward), _left(forecast)
    terms = (
        Term("m", first(forecast.layouts.micro_batches), "", "micro batches of a rank"),
        Term("c", first(rate.compute), "", "time of this software's kernels against all software's, fitted"),
        Term("F", first(work.products_s) * forecast.peak_flops_per_s, "FLOP", "of a rank's products, one micro batch"),
        Term(
            "U",
            first(work.unaligned_s) * forecast.peak_flops_per_s,
            "FLOP",
            "of those whose sizes are no multiple of 128 bytes",
        ),
        Term("u", first(rate.unaligned), "", "speed of those"),
        Term("P", forecast.peak_flops_per_s, "FLOP/s", "dense peak of the device"),
        Term("r", first(rate.products), "", "share of the peak reached, fitted"),
        Term("w", first(work.busy), "", "share of the tensor cores that whole waves of tiles keep busy"),
        Term("x", first(rate.tiles), "", "how much of that libraries lose, fitted"),
        Term("o", first(rate.operands), "", "share of B that nothing hides, fitted"),
        Term("B", first(work.operands_s), "s", "moving the operands once"),
    )
    return Explanation(
        "time.products",
        "matrix products of the forward pass",
        f"m × c × ((F + U / u - U) / (P × r{' × k' if left else ''} × w ^ x) + o × B)",
        (*terms, *left),
        value,
        "s",
        source="NVIDIA, Matrix Multiplication Background User's Guide (tiles and waves); fit: benchmarks/fit_time.py",
    )


def _attention(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    work, rate = _counted(forecast)
    others = [kind for kind in KINDS if kind != "attention"]
    value, left = first(step_without(forecast, *others).forward), _left(forecast)
    terms = (
        Term("m", first(forecast.layouts.micro_batches), "", "micro batches of a rank"),
        Term("c", first(rate.compute), "", "time of the stack's kernels, fitted"),
        Term("A", first(work.attention_s), "s", "what the mask leaves, at the peak"),
        Term("r", first(rate.attention), "", "share of the peak reached, fitted"),
        Term("h", first(rate.ramp), "tokens", "sequence that reaches half of that, fitted"),
        Term("a", first(work.short_s), "s", "fused attention's part of A, for each token"),
        Term("s", first(rate.scores), "", "times that written scores are moved"),
        Term("S", first(work.scores_s), "s", "moving the scores once"),
        Term("w", first(rate.bandwidth), "", "share of the memory's rate reached"),
    )
    return Explanation(
        "time.attention",
        "attention of the forward pass",
        f"m × c × ((A + h × a) / {'(r × k)' if left else 'r'} + s × S / w)",
        (*terms, *left),
        value,
        "s",
        source="fit: benchmarks/fit_time.py",
    )


def _communicate(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    symbols = {
        "tensor parallelism": "t",
        "context parallelism": "c",
        "expert parallelism": "e",
        "pipeline sends": "p",
        "sharded weights and gradients": "s",
        "gradients once a step": "g",
    }
    terms = tuple(Term(symbols[share.name], share.seconds, "s", share.name) for share in exposed(forecast))
    return Explanation(
        "time.communicate",
        "collectives that nothing hides, over all micro batches",
        " + ".join(term.symbol for term in terms) or "0",
        terms,
        first(forecast.step.communicate),
        "s",
        details=_routed(planned),
        source="alpha-beta over two tiers of links: planner/forecast/communication (collectives.py, dispatch.py)",
    )


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
    way = "one a node, then one a rank" if dispatch.hierarchical else "one for each expert"
    details = [
        Term("", first(expected_ranks(experts, float(ep))), "", f"ranks of {ep} that a token goes to{bound}"),
        Term("", inside, "", f"copies of a token over links inside the node: {way}"),
        Term("", between, "", "copies of a token over the network"),
        Term("", there, "bytes", "of a copy on its way to its experts"),
        Term("", back, "bytes", "of a copy on its way back"),
        Term(
            "",
            first(fullest(model, plan.workload, forecast.layouts)),
            "",
            "load of the fullest rank over the mean, which all wait for",
        ),
        Term(
            "",
            first(forecast.layouts.micro_batches * hidden),
            "s",
            "sent to experts and stages while the other direction's micro batch is computed",
        ),
    ]
    return tuple(details if details[-1].value else details[:-1])


def _update(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    (work, rate), device = _counted(forecast), planned.plan.cluster.device
    ours = first(step_without(forecast).update)
    terms = (
        Term("u", first(rate.update), "", "traffic against one fused kernel's, fitted"),
        Term("B", first(work.update_s) * device.bytes_per_s, "bytes", "read and written once by one fused kernel"),
        Term("M", device.bytes_per_s, "bytes/s", "the memory's rate"),
        Term("w", first(rate.bandwidth), "", "share of it that streams reach"),
        Term("n", first(work.orthogonal_s / rate.head), "s", "products that make Muon's updates orthogonal"),
        Term("o", first(forecast.step.update) - ours, "s", "moving what is offloaded"),
    )
    return Explanation(
        "time.update",
        "the optimizer's update",
        "u × B / (M × w) + n + o",
        terms,
        first(forecast.step.update),
        "s",
        details=_streamed(planned),
    )


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
    value, bubble = first(forecast.step.idle), first(forecast.exposure.bubble)
    alone = ", with what passes that run alone do not hide" if forecast.layouts.has("schedule", "dualpipe")[0] else ""
    terms = (
        Term(
            "w",
            value / bubble,
            "s",
            f"beyond the work and the sends of one rank, the schedule of {first(forecast.layouts.pp):,.0f} "
            f"stages played out{alone}",
        ),
        Term("b", bubble, "", "of the schedule's bubble, what is really idle, fitted"),
    )
    return Explanation(
        "time.idle",
        "the pipeline's bubble",
        "b × w",
        terms,
        value,
        "s",
        source="planner/forecast/time/bubble.py, planner/forecast/time/pipeline.py; fit: benchmarks/fit_time.py",
    )


def _flops(planned: Planned) -> Explanation:
    plan = planned.plan
    counted = count_flops(plan.model, sequences=1, sequence_tokens=plan.workload.sequence_tokens)
    terms = (
        Term("l", float(counted.linear), "FLOP", "matrices of the blocks"),
        Term("a", float(counted.attention), "FLOP", "scores and values, in full"),
        Term("h", float(counted.head), "FLOP", "output head"),
        Term("s", float(counted.stem), "FLOP", "stem: pixels need no gradient"),
    )
    return Explanation(
        "flops",
        f"one sequence of {plan.workload.sequence_tokens:,} tokens, forward and backward",
        "3 × (l + a + h) + 2 × s",
        terms,
        float(counted.training),
        "FLOP",
        source="as torch's FlopCounterMode counts; attention in full: Chowdhery et al., 2022, appendix B",
    )


def _mfu(planned: Planned) -> Explanation:
    forecast = planned.choice.forecast
    terms = (
        Term("F", forecast.model_flops_per_token, "FLOP", "of the model for one token (flops)"),
        Term("B", float(forecast.batch_tokens), "tokens", "of a step"),
        Term("t", first(forecast.step_s), "s", "a step (time.step)"),
        Term("d", first(forecast.layouts.devices), "", "devices"),
        Term("P", forecast.peak_flops_per_s, "FLOP/s", "dense peak of one"),
    )
    return Explanation(
        "mfu",
        "model FLOPs utilisation",
        "F × B / (t × d × P)",
        terms,
        first(forecast.mfu),
        "",
        source="Chowdhery et al., 2022, arXiv 2204.02311, appendix B",
    )


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
