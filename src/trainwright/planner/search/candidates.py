"""Every sensible layout of a model on so many devices, as arrays; what is left out is counted, with its reason.

Columns come one after another, and a rule applies as soon as its columns exist: nothing impossible is multiplied out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.support import lacking_axes, method_of
from trainwright.planner.counts.layouts import (
    CHOICES,
    CONTEXTS,
    OFFLOADS,
    RECOMPUTES,
    SCHEDULES,
    ZERO_STAGES,
    FixedLayout,
    Layouts,
    Numbers,
)
from trainwright.planner.counts.parallel.stages import STAGE_WASTE, stage_waste
from trainwright.planner.forecast.communication.collectives import Fabric
from trainwright.planner.search.table import Mask, Pruned, Table
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import FAMILIES, ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Stack, Support
from trainwright.spec.workload import Offload, ParallelPlan, Recompute, Schedule, Workload

MICRO_BATCH_TOKENS = 32_768
"""Tokens of a micro batch on a device beyond which its matrix products gain nothing: their rows fill every wave."""
CONTEXT_TOKENS = 2_048
"""Tokens of a sequence's slice below which context parallelism sends more than it saves."""
FEW_STAGES = 16
"""Stages that are tried however unevenly they cut the blocks: the head fills what the last one has fewer."""
VIRTUAL_STAGES = (1, 2, 4)
"""Chunks of the model on each pipeline rank; more of them send more often than they shorten the bubble."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidates:
    """The layouts that are left, and the classes that are not."""

    layouts: Layouts
    pruned: tuple[Pruned, ...]
    recomputes: int
    """How many recomputations, least first, each layout was given, side by side."""


def divisors(number: int) -> tuple[int, ...]:
    """Returns all divisors, ascending."""
    return tuple(each for each in range(1, number + 1) if number % each == 0)


@lru_cache(maxsize=256)
def stage_counts(model: AnyModel) -> tuple[int, ...]:
    """Returns the numbers of stages that the blocks can be cut into: few, or with little loss (``stage_waste``).

    Besides those that divide them: 16 for the 61 layers of DeepSeek-V3 (arXiv 2412.19437, section 3.2.1), 16 for the
    126 of Llama 3 405B (arXiv 2407.21783, section 3.3.2).
    """
    if not model.is_divisible:
        return (1,)
    counts = range(1, model.blocks + 1)
    return tuple(each for each in counts if each <= FEW_STAGES or stage_waste(model.blocks, each) <= STAGE_WASTE)


def tensor_counts(model: AnyModel) -> tuple[int, ...]:
    """Returns the numbers of ranks that heads can be divided over; ranks beyond the key heads keep copies."""
    if not model.is_divisible:
        return (1,)
    kv = transformer(model).kv_heads
    return tuple(each for each in divisors(transformer(model).heads) if kv % each == 0 or each % kv == 0)


def candidates(
    run: RunSpec,
    devices: Sequence[int],
    *,
    offload: Offload = "none",
    wasteful: bool = False,
    layout: FixedLayout | None = None,
) -> Candidates:
    """Returns the layouts for each number of ``devices`` that can run.

    The run's cluster says which links there are; it must be at least as large as the largest of ``devices``.
    ``wasteful`` keeps layouts that run, but would be bettered by others if those fitted. Memory is not looked at.
    Those that differ from ``layout`` are left out and not counted.
    """
    model, workload, stack = run.model, run.workload, run.stack
    counts = np.asarray(devices, dtype=np.float64)
    wanted = FixedLayout() if layout is None else layout
    columns = {"devices": counts, "offload": np.full(len(counts), OFFLOADS.index(wanted.get("offload", offload)))}
    fixed = dict.fromkeys(map(str, lacking_axes(run)), 1.0) | _places(wanted)
    table = Table(columns, wasteful=wasteful, fixed=fixed)
    _meshes(table, run)
    _sharding(table, model, run.cluster, stack)
    _micro_batches(table, run)
    _schedules(table, stack)
    if wanted.get("recompute_shards"):
        alone, shared = (RECOMPUTES.index(each) for each in ("none", "full"))
        table.shape("recompute", np.where(_sharing_ranks(table) > 1, float(shared), float(alone)))
        return Candidates(layouts=_layouts(table, workload, stack), pruned=tuple(table.pruned), recomputes=1)
    choices = [RECOMPUTES.index(each) for each in _recomputes(table, run)]
    choices = [each for each in choices if table.fixed.get("recompute", each) == each]
    table.cross("recompute", choices)
    many = max(1, len(choices))
    return Candidates(layouts=_layouts(table, workload, stack), pruned=tuple(table.pruned), recomputes=many)


def _places(wanted: FixedLayout) -> dict[str, float]:
    """Returns what is fixed as the columns have it: choices by their place, degrees and flags as numbers."""
    return {
        name: float(CHOICES[name].index(value)) if isinstance(value, str) else float(value)
        for name, value in cast("Mapping[str, str | float]", wanted).items()
    }


def _recomputes(table: Table, run: RunSpec) -> tuple[Recompute, ...]:
    """Returns recomputations, least first; selective where it spares something or is asked for (decision 0037)."""
    if not run.model.is_divisible:
        return ("none",)
    ours = run.stack.memory.kernels == "own" and run.model.family in FAMILIES
    if ours and method_of(run.workload) == "qlora":
        return tuple(each for each in RECOMPUTES if each != "selective")  # which keeps products, and nf4's are none
    if ours or table.fixed.get("recompute") == RECOMPUTES.index("selective") or not run.workload.fused_attention:
        return RECOMPUTES
    if len(table):
        reason = "selective recomputation spares attention's scores, which fused attention never writes"
        table.pruned.append(Pruned(rule="recompute", reason=reason, layouts=len(table)))
    return tuple(each for each in RECOMPUTES if each != "selective")


def _meshes(table: Table, run: RunSpec) -> None:
    """Adds columns tp, pp, cp and data (ranks that see different sequences)."""
    model, workload = run.model, run.workload
    domain, batch = float(Fabric.of(run.cluster).domain), workload.batch_sequences
    joined = "one device" if domain == 1 else f"{domain:,.0f} devices"
    table.cross("tp", tensor_counts(model))
    table.keep(table["devices"] % table["tp"] == 0)
    table.keep(
        table["tp"] <= domain,
        "tensor parallel",
        lambda out: f"{_listed(table['tp'][out])} ranks leave the {joined} that the fastest links join",
    )
    table.cross("pp", stage_counts(model))
    table.keep(table["devices"] % (table["tp"] * table["pp"]) == 0)
    table.cross("cp", (2**power for power in range(12)))
    table.keep(table["devices"] % (table["tp"] * table["pp"] * table["cp"]) == 0)
    table.keep(_divides_sequences(table, transformer(model) if model.is_divisible else None, workload))
    split = table.fixed.get("sequence_parallel", run.stack.sequence_parallel)
    table.keep(workload.sequence_tokens % (table["cp"] * (table["tp"] if split else 1)) == 0)
    table.prefer(
        (table["cp"] == 1) | (workload.sequence_tokens >= CONTEXT_TOKENS * table["cp"]),
        "context parallel, short slices",
        f"slices of {workload.sequence_tokens:,} tokens below {CONTEXT_TOKENS:,} send more than they save",
    )
    data = table["devices"] / (table["tp"] * table["pp"] * table["cp"])
    table.columns["data"] = data
    table.keep(
        data <= batch,
        "data parallel, beyond the batch",
        lambda out: f"{_listed(data[out])} ranks have less than one of the batch's {batch:,} sequences each",
    )
    table.keep(
        batch % table["data"] == 0,
        "data parallel, uneven",
        lambda out: f"{batch:,} sequences cannot be divided over {_listed(table['data'][out])} ranks",
    )
    table.prefer(
        batch / table["data"] >= table["pp"],
        "pipeline parallel",
        "fewer micro batches than stages: the pipeline would stand idle half of the time or more",
    )


def _divides_sequences(table: Table, model: ModelSpec | None, workload: Workload) -> Mask:
    """Returns True where ``cp`` ranks can have parts of every sequence: see ``ParallelPlan``."""
    cp, tokens = table["cp"], workload.sequence_tokens
    if table.fixed.get("context", 0.0) == CONTEXTS.index("gather"):
        return np.asarray(tokens % np.where(cp > 1, 2 * cp, 1) == 0)
    if model is None:
        return np.asarray(cp == 1)
    heads, keys = model.heads / table["tp"], np.maximum(1, model.kv_heads / table["tp"])
    whole = (tokens % cp == 0) & (heads % cp == 0)
    return np.asarray(whole & ((keys % cp == 0) | (cp % keys == 0)))


def _sharding(table: Table, model: AnyModel, cluster: ClusterSpec, stack: Stack) -> None:
    """Adds columns dp_shard, dp_replicate, zero_stage and ep.

    Data-parallel ranks share over nothing, one domain (HSDP), eight domains, or all.
    """
    domain = float(Fabric.of(cluster).domain)
    near = 2.0 ** np.floor(np.log2(np.maximum(1.0, domain / (table["tp"] * table["cp"]))))
    reaches = np.stack([np.ones(len(table)), near, 8 * near, np.full(len(table), np.inf)])
    shared = np.minimum(reaches, table["data"])
    new = (np.diff(shared, axis=0, prepend=0) > 0) & (table["data"] % shared == 0)
    table.cross("reach", range(len(reaches)))
    table.columns["reach"] = shared.T.reshape(-1)
    table.keep(new.T.reshape(-1))
    table.shape("dp_shard", table["reach"])
    table.shape("dp_replicate", table["data"] / table["dp_shard"])
    _zero_stages(table, stack)
    if (stage := table.fixed.get("usual_zero_stage")) is not None:
        every = table["dp_shard"] == table["data"]
        table.keep(every & (table["zero_stage"] == np.where(_sharing_ranks(table) > 1, stage, 0.0)))
    experts = model.experts
    table.cross("ep", (1,) if experts is None else divisors(experts.count))
    ranks = _sharing_ranks(table)
    if experts is None or experts.ffn_width >= transformer(model).width:
        table.keep(ranks % table["ep"] == 0)
        return
    # What tensor parallelism does not divide lies on its ranks too (``states.expert_tp``).
    table.keep(ranks * table["tp"] % table["ep"] == 0)
    table.prefer(
        table["ep"] >= table["tp"],
        "expert parallel, below tensor parallel",
        "tensor-parallel ranks, which do not divide such narrow experts, would keep several copies of them",
    )


def _sharing_ranks(table: Table) -> Numbers:
    """Returns the number of ranks that can share states: those of a batch's parts, and those of a sequence's."""
    return table["dp_shard"] * table["cp"]


def _zero_stages(table: Table, stack: Stack) -> None:
    """Adds column zero_stage: 0 where nothing is shared, else 1 in a pipeline, 2 or 3 without one; of the stack's.

    Ranks of ``cp`` alone share, or have copies of everything.
    """
    table.cross("zero_stage", stack.runs.zero_stages)
    table.keep(np.where(table["zero_stage"] == 0, table["dp_shard"] == 1, _sharing_ranks(table) > 1))
    # torch's FSDP2 keeps weights gathered between micro batches of a pipeline.
    for stage, strike, reason in (
        (2, table.keep, "gradients are accumulated whole over its micro batches"),
        (3, table.prefer, "holds whole weights all the same, and gathers them besides"),
    ):
        mask = (table["zero_stage"] != stage) | (table["pp"] == 1)
        strike(mask, f"ZeRO-{stage} in a pipeline", reason)
    if stack.runs.stages_with:
        reason = "what is offloaded, and what the model is divided by, leave its software other stages"
        table.keep(_shares(table, stack.runs), f"ZeRO in {stack.name}", reason)


def _shares(table: Table, runs: Support) -> Mask:
    """Returns True where ranks share what the software lets them: see ``Support.stages_with``."""
    able = np.tile([stage in runs.zero_stages for stage in ZERO_STAGES], (len(table), 1))
    for part, stages in runs.stages_with.items():
        used = table["offload"] == OFFLOADS.index(part) if part in OFFLOADS else table[part] > 1
        able &= ~used[:, None] | np.asarray([stage in stages for stage in ZERO_STAGES])
    alone = table["dp_replicate"] * _sharing_ranks(table) == 1
    said = able[np.arange(len(table)), table["zero_stage"].astype(np.intp)]
    return np.where(alone, able.any(axis=1), said)


def _micro_batches(table: Table, run: RunSpec) -> None:
    """Adds columns micro_batch and virtual_stages."""
    workload = run.workload
    at_once = workload.update_in_backward
    if at_once:  # gradients that are gone cannot be added up: a step is one micro batch, however large
        table.shape("micro_batch", workload.batch_sequences / table["data"])
    else:
        per_rank = workload.batch_sequences / table["data"] if len(table) else np.ones(1)
        table.cross("micro_batch", _sizes(per_rank, images=run.model.sees_images))
        table.keep(workload.batch_sequences % (table["data"] * table["micro_batch"]) == 0)
    for size in workload.sizes.different[:-1]:
        each = table["micro_batch"] if run.model.is_divisible else 1  # batch norms see any batch in one pass
        table.keep(
            size // workload.sequence_tokens % (table["data"] * each) == 0,
            "batch ramp",
            "does not divide each of the smaller batches that the run begins with",
        )
    usual = table.fixed.get("usual_micro_batch", 0.0)
    if usual and not at_once:
        divides = (workload.batch_sequences / table["data"]) % usual == 0
        table.keep((table["micro_batch"] == usual) | ~divides)
    # Twice the data-parallel ranks with half the micro batch hold and compute the same, and exchange no keys.
    table.prefer(
        (table["cp"] == 1) | (table["micro_batch"] == 1),
        "context parallel, large micro batch",
        "with several sequences in a micro batch sends what more data-parallel ranks need not",
    )
    tokens = table["micro_batch"] * workload.sequence_tokens / table["cp"]
    table.keep(
        (table["micro_batch"] == 1) | (table["micro_batch"] == usual) | (tokens <= MICRO_BATCH_TOKENS) | at_once,
        "micro batch, too large",
        f"more than {MICRO_BATCH_TOKENS:,} tokens on a device gain nothing",
    )
    table.columns["micro_batches"] = workload.batch_sequences / (table["data"] * table["micro_batch"])
    table.prefer(
        table["micro_batches"] >= table["pp"], "micro batch, too few", "leaves fewer micro batches than pipeline stages"
    )
    table.cross("virtual_stages", VIRTUAL_STAGES if "interleaved" in run.stack.schedules else (1,))
    chunks = (table["pp"] * table["virtual_stages"]).astype(np.intp)  # and no np.isin: it imports numpy.ma, in 20 ms
    cut = np.bincount(stage_counts(run.model), minlength=int(chunks.max(initial=0)) + 1)[chunks] > 0
    whole = table["micro_batches"] % table["pp"] == 0  # Narayanan et al., 2021, section 2.2
    table.keep((table["virtual_stages"] == 1) | ((table["pp"] > 1) & cut & whole))


def _sizes(per_rank: Numbers, *, images: bool) -> list[int]:
    """Returns the micro batches that are tried: powers of two; of images also all that a rank has, and halves of that.

    85 images are one pass as well as 64 are; sequences are few to a rank, and come in powers of two.
    """
    sizes = {2**power for power in range(int(np.log2(per_rank.max())) + 1)}
    for each in set(per_rank.astype(int).tolist()) if images else ():
        sizes |= {each >> power for power in range(each.bit_length()) if not each % (1 << power)}
    return sorted(sizes - {0})


def _schedules(table: Table, stack: Stack) -> None:
    """Adds column schedule: interleaved for several chunks, else 1F1B; others too where the stack has them.

    GPipe holds more than 1F1B, and waits as long.
    """
    others: tuple[Schedule, ...] = ("zero_bubble", "dualpipe")
    plain, chunks, filled, both = (float(SCHEDULES.index(name)) for name in ("1f1b", "interleaved", *others))
    more = (float(SCHEDULES.index(name)) for name in others if name in stack.schedules)
    asked = table.fixed.get("schedule", plain)
    table.cross("schedule", dict.fromkeys((plain, chunks, *more, asked)))
    several = table["virtual_stages"] > 1
    table.keep(np.where(several, table["schedule"] == chunks, table["schedule"] != chunks))
    table.keep(((table["schedule"] != filled) & (table["schedule"] != both)) | (table["pp"] > 1))
    table.keep((table["schedule"] != both) | two_ways(table["pp"], table["micro_batches"]))


def two_ways(pp: Numbers, micro_batches: Numbers) -> Mask:
    """Returns True where micro batches can enter a pipeline at both ends: even numbers, twice as many as stages."""
    mask: Mask = (pp % 2 == 0) & (micro_batches % 2 == 0) & (micro_batches >= 2 * pp)
    return mask


def _layouts(table: Table, workload: Workload, stack: Stack) -> Layouts:
    """Returns the rows as ``Layouts``, in the way that ``stack`` works."""
    ones = np.ones(len(table))
    return Layouts(
        **{each.name: table[each.name] for each in dataclasses.fields(Layouts) if each.name in table.columns},
        sequence_parallel=ones * table.fixed.get("sequence_parallel", stack.sequence_parallel),
        compile=ones * table.fixed.get("compile", stack.memory.kernels == "compiled"),
        batch_sequences=ones * workload.batch_sequences,
        context=ones * table.fixed.get("context", 0.0),
        unevenness=ones,
    )


def parallel_plan(layouts: Layouts, place: int) -> tuple[ParallelPlan, Recompute]:
    """Returns the layout at ``place``, and its recomputation."""

    def whole(name: str) -> int:
        return int(getattr(layouts, name)[place])

    degrees: dict[str, Any] = {
        name: whole(name) for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "virtual_stages")
    }
    plan = ParallelPlan(
        **degrees,
        micro_batch_sequences=whole("micro_batch"),
        compile=bool(whole("compile")),
        deterministic=None,
        zero_stage=ZERO_STAGES[whole("zero_stage")],
        sequence_parallel=bool(whole("sequence_parallel")),
        schedule=SCHEDULES[whole("schedule")],
        offload=OFFLOADS[whole("offload")],
        context=CONTEXTS[whole("context")],
    )
    return plan, RECOMPUTES[whole("recompute")]


def _listed(values: Numbers) -> str:
    """Returns ``16, 32 and 64``; the ends of a long list."""
    texts = [f"{value:,.0f}" for value in sorted(set(values.tolist()))]
    if len(texts) > 4:
        return f"{texts[0]} to {texts[-1]}"
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
