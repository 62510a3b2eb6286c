"""How a layout divides a run: the sizes that its axes do not divide, each with the nearest that they do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.spec.device import ClusterSpec
    from trainwright.spec.model import ModelSpec
    from trainwright.spec.workload import ParallelPlan, Workload


def problems(plan: ParallelPlan, model: ModelSpec, workload: Workload, cluster: ClusterSpec) -> tuple[str, ...]:
    """Returns every reason why this layout cannot run, with what is nearest and does; empty where there is none."""
    axes = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "virtual_stages")
    found = [f"{axis} must be at least 1, seen {getattr(plan, axis)}" for axis in axes if getattr(plan, axis) < 1]
    if plan.micro_batch_sequences < 1:
        found.append(f"micro_batch_sequences must be at least 1, seen {plan.micro_batch_sequences}")
    if found:
        return tuple(found)
    if plan.ranks != cluster.devices:
        found.append(
            f"the layout uses {plan.ranks} devices, the cluster has {cluster.devices}{_resized(plan, cluster)}"
        )
    found += _undivided(plan, model, workload)
    if plan.ranks == cluster.devices:
        sizes = (size // workload.sequence_tokens for size in workload.sizes.different)
        found += dict.fromkeys(why for size in sizes for why in _undivided_batch(plan, size))
    return tuple(found)


def _undivided_batch(plan: ParallelPlan, sequences: int) -> list[str]:
    """Returns why a batch of so many sequences is not divided over the ranks and their micro batches."""
    data, size = plan.dp_replicate * plan.dp_shard, plan.micro_batch_sequences
    if plan.shares:
        return _unshared(plan, sequences)
    if sequences % data:
        parts = f" in micro batches of {size}" if size > 1 else ""
        over, near = f"{data} data-parallel ranks{parts}", _multiples_near(sequences, data * size)
        return [f"a batch of {sequences} sequences cannot be divided over {over}: nearest batches {near} sequences"]
    if (each := sequences // data) % size:
        seen, near = f"{each} sequences of a rank", _divisors_near(each, size)
        return [f"{seen} cannot be divided into micro batches of {size}: nearest {near}"]
    return _one_way(plan, each // size) if plan.schedule == "dualpipe" else []


def _unshared(plan: ParallelPlan, sequences: int) -> list[str]:
    """Why a batch cannot be divided by ``shares``."""
    data, total = plan.dp_replicate * plan.dp_shard, sum(plan.shares)
    seen = ":".join(map(str, plan.shares))
    if data % len(plan.shares):
        near = _divisors_near(data, len(plan.shares))
        return [f"{len(plan.shares)} shares ({seen}) for {data} data-parallel ranks: nearest {near} shares"]
    whole = total * (data // len(plan.shares))
    if sequences % whole:
        near = _multiples_near(sequences, whole)
        return [
            f"a batch of {sequences} sequences cannot be divided into shares {seen}: nearest batches {near} sequences"
        ]
    each = math.gcd(*(share * sequences // whole for share in plan.shares))
    if each % plan.micro_batch_sequences:
        near = _divisors_near(each, plan.micro_batch_sequences)
        size = plan.micro_batch_sequences
        return [f"parts {seen} of {sequences} sequences cannot be cut into micro batches of {size}: nearest {near}"]
    return []


def _one_way(plan: ParallelPlan, micro_batches: int) -> list[str]:
    """Why micro batches cannot run in both directions."""
    problems = []
    if plan.pp % 2:
        problems.append(f"schedule=dualpipe needs an even number of stages, seen pp={plan.pp}")
    elif micro_batches % 2 or micro_batches < 2 * plan.pp:
        problems.append(
            f"schedule=dualpipe needs an even number of micro batches, at least {2 * plan.pp} for pp={plan.pp}, "
            f"seen {micro_batches}"
        )
    if plan.virtual_stages > 1:
        problems.append(f"schedule=dualpipe has one stage a direction, seen virtual_stages={plan.virtual_stages}")
    return problems


def _undivided(plan: ParallelPlan, model: ModelSpec, workload: Workload) -> list[str]:
    """Sizes of the model that the axes do not divide."""
    problems = []
    # More ranks than key heads keep copies of them.
    if model.heads % plan.tp or (model.kv_heads % plan.tp and plan.tp % model.kv_heads):
        dim, size = ("heads", model.heads) if model.heads % plan.tp else ("kv_heads", model.kv_heads)
        near = _divisors_near(model.kv_heads if plan.tp < model.kv_heads else model.heads, plan.tp)
        problems.append(f"{dim} ({size}) cannot be divided over tp={plan.tp}: nearest {near}")
    stages = plan.pp * plan.virtual_stages
    if stages > model.blocks:
        chunks = "" if plan.virtual_stages == 1 else f" with virtual_stages={plan.virtual_stages}"
        problems.append(
            f"layers ({model.blocks}) are fewer than the {stages} stages of pp={plan.pp}{chunks}: "
            f"at most pp={max(1, model.blocks // plan.virtual_stages)}"
        )
    problems += _undivided_sequences(plan, model, workload) if plan.cp > 1 else []
    tokens = workload.sequence_tokens // plan.cp
    if plan.sequence_parallel and workload.sequence_tokens % plan.cp == 0 and tokens % plan.tp:
        problems.append(
            f"sequence_parallel divides {tokens} tokens over tp={plan.tp}, which does not: "
            f"nearest {_divisors_near(tokens, plan.tp)}, or sequence_parallel=false"
        )
    if plan.ep > 1 and model.experts is None:
        problems.append(f"ep={plan.ep} divides experts, and this model has none: ep=1")
    experts = plan.ep if model.experts is None else model.experts.count
    owners = plan.dp_replicate * plan.dp_shard * plan.cp * plan.tp
    problems += [
        f"{what} ({size}) cannot be divided over ep={plan.ep}: nearest {_divisors_near(size, plan.ep)}"
        for size, what in ((experts, "experts"), (owners, "ranks of a stage"))
        if size % plan.ep
    ]
    return problems


def _undivided_sequences(plan: ParallelPlan, model: ModelSpec, workload: Workload) -> list[str]:
    """Why ``cp`` does not divide sequences, or the heads that its ranks exchange."""
    tokens, problems = workload.sequence_tokens, []
    if tokens % plan.cp:
        near = _divisors_near(tokens, plan.cp)
        problems.append(f"a sequence of {tokens} tokens cannot be divided over cp={plan.cp}: nearest {near}")
    elif plan.context == "gather" and tokens % (2 * plan.cp):
        problems.append(
            f"a sequence of {tokens} tokens cannot be divided over cp={plan.cp}, each rank with a part from the "
            f"front and one from the end: nearest {_divisors_near(tokens // 2, plan.cp)}, or context=ulysses"
        )
    heads, key_heads = model.heads // plan.tp, max(1, model.kv_heads // plan.tp)
    if plan.context == "ulysses" and (heads % plan.cp or (key_heads % plan.cp and plan.cp % key_heads)):
        dim, size = ("heads", heads) if heads % plan.cp else ("kv_heads", key_heads)
        problems.append(
            f"{dim} ({size} on a rank) cannot be exchanged over cp={plan.cp}: "
            f"nearest {_divisors_near(size, plan.cp)}, or context=gather"
        )
    return problems


def _resized(plan: ParallelPlan, cluster: ClusterSpec) -> str:
    """How many ranks data parallelism would need to fill the cluster."""
    others = plan.tp * plan.pp * plan.cp
    if cluster.devices % others:
        return f": tp x pp x cp = {others} does not divide them, nearest {_divisors_near(cluster.devices, others)}"
    return f": with dp_shard={cluster.devices // others} it is full" if plan.dp_replicate == 1 else ""


def _divisors_near(size: int, wanted: int) -> str:
    """Returns the divisors of ``size`` on both sides of ``wanted``: ``4 or 8``."""
    divisors = [each for each in range(1, size + 1) if size % each == 0]
    below = [each for each in divisors if each < wanted][-1:]
    above = [each for each in divisors if each > wanted][:1]
    return " or ".join(map(str, (*below, *above)))


def _multiples_near(size: int, unit: int) -> str:
    """Returns the multiples of ``unit`` on both sides of ``size``."""
    below = size // unit * unit
    return " or ".join(str(each) for each in (below, below + unit) if each)
