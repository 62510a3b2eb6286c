"""Formulas of a step's phases; see ``planner.explain``.

A phase is linear in its parts, so that a part is what the phase is longer by for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trainwright.planner.cluster_plan import COMPUTE, Planned, bound_by, exposed, step_without
from trainwright.planner.explanation import Explanation, Term
from trainwright.planner.flops import count_flops
from trainwright.planner.predict.collectives import Fabric, placement
from trainwright.planner.predict.dispatch import copies, expected_ranks, fullest, token_bytes
from trainwright.planner.predict.forecast import Forecast
from trainwright.planner.predict.offload import offloaded
from trainwright.planner.predict.states import case_of, expert_tp
from trainwright.planner.predict.step import Value, combine, passes
from trainwright.spec.convnet import ConvNetSpec


def _number(value: Value) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _step(planned: Planned) -> Explanation:
    step = planned.choice.found.step
    meanings = {
        "forward": "kernels of the forward pass", "backward": "kernels of the backward pass, recomputation included",
        "communicate": "collectives that nothing hides", "update": "the optimizer",
        "host": "waiting for the host to launch kernels", "idle": "the pipeline's bubble",
    }  # fmt: skip
    terms = tuple(
        Term(symbol=name, value=_number(getattr(step, name)), unit="s", meaning=meaning)
        for name, meaning in meanings.items()
    )
    return Explanation(
        name="time.step", about="one step, which its phases partition", formula=" + ".join(meanings), terms=terms,
        value=_number(step.total_s), unit="s",
    )  # fmt: skip


def _left(found: Forecast) -> tuple[Term, ...]:
    """Share of the processors that sending to experts leaves to what runs beside it; nothing where it leaves all."""
    if not found.layouts.has("schedule", "dualpipe")[0] or not _number(found.sent.occupied):
        return ()
    meaning = "share of the processors that sending to experts leaves, while both run"
    return (Term(symbol="k", value=1.0 - _number(found.sent.occupied), unit="", meaning=meaning),)


_SYMBOLS = {"p": "matrix products of the blocks", "a": "attention", "b": "memory traffic between the products",
            "h": "the output head and the loss"}  # fmt: skip


def _kernels(phase: str) -> Callable[[Planned], Explanation]:
    """Forward or backward: the sum of its kinds of kernels, over all micro batches."""

    def explained(planned: Planned) -> Explanation:
        found = bound_by(planned.choice.found, lambda step: step.forward if phase == "forward" else step.backward)
        whole = _number(getattr(found.step, phase))
        parts = {
            symbol: whole - _number(getattr(step_without(found, *COMPUTE[kind]), phase))
            for symbol, kind in _SYMBOLS.items()
        }
        # The rank with the head has fewer blocks; what it has more of all is the head's.
        parts["h"] = whole - sum(value for symbol, value in parts.items() if symbol != "h")
        terms = [Term(symbol=symbol, value=parts[symbol], unit="s", meaning=kind) for symbol, kind in _SYMBOLS.items()]
        about = f"kernels of the {phase} pass, all {_number(found.layouts.micro_batches):,.0f} micro batches"
        return Explanation(
            name=f"time.{phase}", about=about, formula=" + ".join(_SYMBOLS), terms=tuple(terms), value=whole, unit="s"
        )

    return explained


def _products(planned: Planned) -> Explanation:
    """The forward pass's matrix products: operations over what the software reaches of the peak."""
    found = planned.choice.found
    work, rate = found.work, found.rates
    others = [name for kind, names in COMPUTE.items() if kind != "matrix products of the blocks" for name in names]
    value, left = _number(step_without(found, *others).forward), _left(found)
    terms = (
        Term(symbol="m", value=_number(found.layouts.micro_batches), unit="", meaning="micro batches of a rank"),
        Term(symbol="c", value=_number(rate.compute), unit="",
             meaning="time of this software's kernels against all software's, fitted"),
        Term(symbol="F", value=_number(work.products_s) * found.peak_flops_per_s, unit="FLOP",
             meaning="of a rank's products, one micro batch"),
        Term(symbol="U", value=_number(work.unaligned_s) * found.peak_flops_per_s, unit="FLOP",
             meaning="of those whose sizes are no multiple of 128 bytes"),
        Term(symbol="u", value=_number(rate.unaligned), unit="", meaning="speed of those"),
        Term(symbol="P", value=found.peak_flops_per_s, unit="FLOP/s", meaning="dense peak of the device"),
        Term(symbol="r", value=_number(rate.products), unit="", meaning="share of the peak reached, fitted"),
        Term(symbol="w", value=_number(work.busy), unit="", meaning="share of the tensor cores that whole waves of "
             "tiles keep busy"),
        Term(symbol="x", value=_number(rate.tiles), unit="", meaning="how much of that libraries lose, fitted"),
        Term(symbol="o", value=_number(rate.operands), unit="", meaning="share of B that nothing hides, fitted"),
        Term(symbol="B", value=_number(work.operands_s), unit="s", meaning="moving the operands once"),
    )  # fmt: skip
    return Explanation(
        name="time.products", about="matrix products of the forward pass",
        formula=f"m × c × ((F + U / u - U) / (P × r{' × k' if left else ''} × w ^ x) + o × B)",
        terms=(*terms, *left), value=value, unit="s",
        source="NVIDIA, Matrix Multiplication Background User's Guide (tiles and waves); fit: benchmarks/fit_time.py",
    )  # fmt: skip


def _attention(planned: Planned) -> Explanation:
    found = planned.choice.found
    work, rate = found.work, found.rates
    others = [name for kind, names in COMPUTE.items() if kind != "attention" for name in names]
    value, left = _number(step_without(found, *others).forward), _left(found)
    terms = (
        Term(symbol="m", value=_number(found.layouts.micro_batches), unit="", meaning="micro batches of a rank"),
        Term(symbol="c", value=_number(rate.compute), unit="", meaning="time of the stack's kernels, fitted"),
        Term(symbol="A", value=_number(work.attention_s), unit="s", meaning="what the mask leaves, at the peak"),
        Term(symbol="r", value=_number(rate.attention), unit="", meaning="share of the peak reached, fitted"),
        Term(symbol="h", value=_number(rate.ramp), unit="tokens", meaning="sequence that reaches half of that, fitted"),
        Term(symbol="a", value=_number(work.short_s), unit="s", meaning="fused attention's part of A, for each token"),
        Term(symbol="s", value=_number(rate.scores), unit="", meaning="times that written scores are moved"),
        Term(symbol="S", value=_number(work.scores_s), unit="s", meaning="moving the scores once"),
        Term(symbol="w", value=_number(rate.bandwidth), unit="", meaning="share of the memory's rate reached"),
    )  # fmt: skip
    return Explanation(
        name="time.attention", about="attention of the forward pass", terms=(*terms, *left), value=value, unit="s",
        formula=f"m × c × ((A + h × a) / {'(r × k)' if left else 'r'} + s × S / w)",
        source="fit: benchmarks/fit_time.py",
    )  # fmt: skip


def _communicate(planned: Planned) -> Explanation:
    found = planned.choice.found
    symbols = {
        "tensor parallelism": "t", "context parallelism": "c", "expert parallelism": "e", "pipeline sends": "p",
        "sharded weights and gradients": "s", "gradients once a step": "g",
    }  # fmt: skip
    terms = tuple(
        Term(symbol=symbols[share.name], value=share.seconds, unit="s", meaning=share.name) for share in exposed(found)
    )
    return Explanation(
        name="time.communicate", about="collectives that nothing hides, over all micro batches",
        formula=" + ".join(term.symbol for term in terms) or "0", terms=terms, value=_number(found.step.communicate),
        unit="s", details=_routed(planned),
        source="alpha-beta over two tiers of links: planner/predict/collectives.py, planner/predict/dispatch.py",
    )  # fmt: skip


def _routed(planned: Planned) -> tuple[Term, ...]:
    """What is sent to experts, and what of it is hidden; nothing where they are not divided."""
    plan, scenario, found = planned.plan, planned.scenario, planned.choice.found
    model, ep = plan.model, plan.parallel.ep
    if isinstance(model, ConvNetSpec) or model.experts is None or ep == 1:
        return ()
    dispatch, fabric = scenario.stack.dispatch, Fabric.of(plan.cluster)
    group = placement(domain=fabric.domain, tp=expert_tp(model, found.layouts), ep=ep, dp_shard=ep).ep
    each = copies(model.experts, group, hierarchical=dispatch.hierarchical)
    inside, between = map(_number, each)
    there, back = token_bytes(model, plan.workload, dispatch)
    bound = (
        ""
        if model.experts.groups == 1
        else (f", of {model.experts.active_groups} of {model.experts.groups} groups at most")
    )
    hidden = passes(found.work, found.sent, found.layouts, found.rates).hidden
    way = "one a node, then one a rank" if dispatch.hierarchical else "one for each expert"
    said = [
        Term(symbol="", value=_number(expected_ranks(model.experts, float(ep))), unit="",
             meaning=f"ranks of {ep} that a token goes to{bound}"),
        Term(symbol="", value=inside, unit="", meaning=f"copies of a token over links inside the node: {way}"),
        Term(symbol="", value=between, unit="", meaning="copies of a token over the network"),
        Term(symbol="", value=there, unit="bytes", meaning="of a copy on its way to its experts"),
        Term(symbol="", value=back, unit="bytes", meaning="of a copy on its way back"),
        Term(symbol="", value=_number(fullest(model, plan.workload, found.layouts)), unit="",
             meaning="load of the fullest rank over the mean, which all wait for"),
        Term(symbol="", value=_number(found.layouts.micro_batches * hidden), unit="s",
             meaning="sent to experts and stages while the other direction's micro batch is computed"),
    ]  # fmt: skip
    return tuple(said if said[-1].value else said[:-1])


def _update(planned: Planned) -> Explanation:
    found = planned.choice.found
    rate, device = found.rates, planned.plan.cluster.device
    ours = _number(combine(found.work, found.sent, found.layouts, rate).update)
    terms = (
        Term(symbol="u", value=_number(rate.update), unit="", meaning="traffic against one fused kernel's, fitted"),
        Term(symbol="B", value=_number(found.work.update_s) * device.bytes_per_s, unit="bytes",
             meaning="read and written once by one fused kernel"),
        Term(symbol="M", value=device.bytes_per_s, unit="bytes/s", meaning="the memory's rate"),
        Term(symbol="w", value=_number(rate.bandwidth), unit="", meaning="share of it that streams reach"),
        Term(symbol="n", value=_number(found.work.orthogonal_s / rate.head), unit="s",
             meaning="products that make Muon's updates orthogonal"),
        Term(symbol="o", value=_number(found.step.update) - ours, unit="s", meaning="moving what is offloaded"),
    )  # fmt: skip
    return Explanation(
        name="time.update", about="the optimizer's update", formula="u × B / (M × w) + n + o", terms=terms,
        value=_number(found.step.update), unit="s", details=_streamed(planned),
    )  # fmt: skip


def _streamed(planned: Planned) -> tuple[Term, ...]:
    """What the drives do where the optimizer's state lives on NVMe."""
    node, layouts = planned.plan.cluster.node, planned.choice.found.layouts
    if not layouts.offloads_to_nvme[0]:
        return ()
    case = case_of(planned.scenario.transformer, planned.plan.workload, layouts, planned.scenario.stack.memory)
    state = node.devices * float(offloaded(case).moved.optimizer.max())
    return (
        Term(symbol="", value=state, unit="bytes", meaning="of a node, read from and written to NVMe once a step"),
        Term(symbol="", value=node.nvme_read_bytes_per_s or 0.0, unit="bytes/s", meaning="that its drives read"),
        Term(symbol="", value=node.nvme_write_bytes_per_s or 0.0, unit="bytes/s", meaning="that they write"),
    )


def _idle(planned: Planned) -> Explanation:
    found = planned.choice.found
    value, bubble = _number(found.step.idle), _number(found.rates.bubble)
    alone = ", with what passes that run alone do not hide" if found.layouts.has("schedule", "dualpipe")[0] else ""
    terms = (
        Term(symbol="w", value=value / bubble, unit="s",
             meaning=f"beyond the work and the sends of one rank, the schedule of {_number(found.layouts.pp):,.0f} "
             f"stages played out{alone}"),
        Term(symbol="b", value=bubble, unit="", meaning="of the schedule's bubble, what is really idle, fitted"),
    )  # fmt: skip
    return Explanation(
        name="time.idle", about="the pipeline's bubble", formula="b × w", terms=terms, value=value, unit="s",
        source="planner/predict/bubble.py, planner/predict/pipeline.py; fit: benchmarks/fit_time.py",
    )  # fmt: skip


def _flops(planned: Planned) -> Explanation:
    plan = planned.plan
    counted = count_flops(plan.model, sequences=1, sequence_tokens=plan.workload.sequence_tokens)
    terms = (
        Term(symbol="l", value=float(counted.linear), unit="FLOP", meaning="matrices of the blocks"),
        Term(symbol="a", value=float(counted.attention), unit="FLOP", meaning="scores and values, in full"),
        Term(symbol="h", value=float(counted.head), unit="FLOP", meaning="output head"),
        Term(symbol="s", value=float(counted.stem), unit="FLOP", meaning="stem: pixels need no gradient"),
    )
    return Explanation(
        name="flops", about=f"one sequence of {plan.workload.sequence_tokens:,} tokens, forward and backward",
        formula="3 × (l + a + h) + 2 × s", terms=terms, value=float(counted.training), unit="FLOP",
        source="as torch's FlopCounterMode counts; attention in full: Chowdhery et al., 2022, appendix B",
    )  # fmt: skip


def _mfu(planned: Planned) -> Explanation:
    found = planned.choice.found
    terms = (
        Term(symbol="F", value=found.model_flops_per_token, unit="FLOP", meaning="of the model for one token (flops)"),
        Term(symbol="B", value=float(found.batch_tokens), unit="tokens", meaning="of a step"),
        Term(symbol="t", value=_number(found.step_s), unit="s", meaning="a step (time.step)"),
        Term(symbol="d", value=_number(found.layouts.devices), unit="", meaning="devices"),
        Term(symbol="P", value=found.peak_flops_per_s, unit="FLOP/s", meaning="dense peak of one"),
    )
    return Explanation(
        name="mfu", about="model FLOPs utilisation", formula="F × B / (t × d × P)", terms=terms,
        value=_number(found.mfu), unit="", source="Chowdhery et al., 2022, arXiv 2204.02311, appendix B",
    )  # fmt: skip


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
