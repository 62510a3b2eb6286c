"""How many messages a rank of this project's trainer takes part in, and of how many bytes.

The seconds of the same volumes are ``exchange``'s. A sharded network is gathered in as many pieces as it has blocks and
one more, the root: embedding, last norm and head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.parallel.dry_run import Sent
from trainwright.planner.counts.parallel.stages import Place, place_of
from trainwright.planner.counts.parallel.tensor import RankParameters, rank_parameters
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.planner.counts.pieces import STACK_ELEMENTS, loss_rows
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, ReduceDtype

KEPT_BYTES = 4
"""Of a weight and of a gradient: both are fp32, and the root is gathered so too."""
REDUCED_BYTES: Mapping[ReduceDtype, int] = {"fp32": KEPT_BYTES, "bf16": 2}
"""Of a gradient while data-parallel ranks add it up."""
MOMENTUM_BYTES = 2
"""Of a matrix's momentum, as Muon's ranks exchange it."""
BEFORE, AFTER, NORM = 8, 4, 8
"""Bytes of what all ranks add up once a step: weight of the batch, summed loss, square of the gradient's norm."""
LOAD = 8
"""Of what is counted of an expert: tokens that chose it."""
EXPERT_MATRICES = 3
"""Of a mixture, gathered apart from each other where experts are divided."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weights:
    """Parameters that the same ranks share, or have copies of: those in blocks in so many pieces, and the root.

    ``owners`` share them along the axes ``shard``; there are copies along the axes ``copies``, which may be none.
    """

    parameters: float
    in_blocks: int
    owners: int
    shard: str
    copies: str
    root: float = 0.0
    has_root: bool = False

    @property
    def pieces(self) -> int:
        """Returns in how many pieces they are gathered."""
        return self.in_blocks + self.has_root


def messages(run: RunSpec, parallel: ParallelPlan, *, passes: int, place: int = 0) -> tuple[Sent, ...]:
    """Returns what a rank at a place of the pipeline sends in a step of so many micro batches, by kind and axis.

    ZeRO-3 gathers every piece before each forward pass, and blocks again before each backward pass; stages below it
    keep what they gathered through the step. From ZeRO-2 on gradients are reduced after each micro batch, below after
    the last. Copies of a shard are added up once a step (Rajbhandari et al., 2020, section 7). Ranks of ``cp`` share
    as those of ``dp_shard`` do; without sharing (stage 0) they have copies. In a pipeline weights stay gathered and
    gradients whole over all micro batches, whatever the stage, and neighbouring stages hand on every micro batch and
    its gradient.
    """
    at = place_of(run.transformer, parallel, place)
    own = rank_parameters(run.transformer, parallel.tp, at)
    mixtures = round(at.blocks * run.transformer.moe_layers / run.transformer.blocks)
    weights = _shared(parallel, at, own, mixtures=mixtures)
    owners = weights[0].owners
    sent: list[Sent] = []
    for each in weights:
        sent += _of_weights(run, parallel, each, passes=passes)
    sent += _context(run, parallel, at, passes)
    sent += _between_stages(run, parallel, at, passes, table_bytes=KEPT_BYTES * own.table / owners)
    sent += _once(run.transformer, parallel)
    if parallel.ep > 1:
        sent += _between_experts(run, parallel, mixtures, passes=passes)
    if parallel.tp > 1:
        sent += _between_matrices(run, parallel, at, passes=passes)
        sent += _of_copies(run, parallel, own, owners=owners)
    if run.workload.optimizer == "muon":
        sent += _whole_matrices(run, parallel, at, weights[0].shard if owners > 1 else "")
    return tuple(_joined(sent))


def _shared(parallel: ParallelPlan, at: Place, own: RankParameters, *, mixtures: int) -> list[_Weights]:
    """Returns the parameters of a rank; those of divided experts apart, which ranks with other ones do not share."""
    copied = parallel.zero_stage == 0 and parallel.dp_shard == 1
    sizes = {name: int(getattr(parallel, name)) for name in ("dp_replicate", "dp_shard", "cp")}
    apart = own.experts if parallel.ep > 1 else 0.0
    rest = _Weights(
        parameters=own.blocks - apart,
        in_blocks=at.blocks,
        owners=1 if copied else parallel.sharing,
        shard="+".join(name for name in ("dp_shard", "cp") if sizes[name] > 1),
        copies="+".join(name for name in ("dp_replicate", "cp")[: 1 + copied] if sizes[name] > 1),
        root=own.root,
        has_root=at.begins or at.ends,
    )
    if not apart:
        return [rest]
    copies, owners = parallel.of_experts
    pieces = EXPERT_MATRICES * mixtures
    shard, along = "dp_shard" if owners > 1 else "", "dp_replicate" if copies > 1 else ""
    return [rest, _Weights(parameters=apart / parallel.ep, in_blocks=pieces, owners=owners, shard=shard, copies=along)]


def _of_weights(run: RunSpec, parallel: ParallelPlan, weights: _Weights, *, passes: int) -> Iterator[Sent]:
    """Yields what gathers weights, and adds up their gradients."""
    piped, reduced = parallel.pp > 1, REDUCED_BYTES[run.kernels.reduce]
    every = weights.parameters + weights.root
    if weights.owners > 1:
        again = run.workload.element_bytes * weights.parameters
        whole = again + KEPT_BYTES * weights.root
        twice = parallel.zero_stage == 3 and not piped
        rounds = passes if twice else 1
        count, size_bytes = rounds * (weights.pieces + twice * weights.in_blocks), rounds * (whole + twice * again)
        yield Sent(kind="all-gather", axis=weights.shard, count=count, size_bytes=size_bytes)
        reductions = passes if parallel.zero_stage >= 2 and not piped else 1
        count, size_bytes = reductions * weights.pieces, reductions * reduced * every
        yield Sent(kind="reduce-scatter", axis=weights.shard, count=count, size_bytes=size_bytes)
    if weights.copies:
        size_bytes = reduced * every / weights.owners
        yield Sent(kind="all-reduce", axis=weights.copies, count=weights.pieces, size_bytes=size_bytes)


def _between_experts(run: RunSpec, parallel: ParallelPlan, mixtures: int, *, passes: int) -> Iterator[Sent]:
    """Yields what the ranks of ``ep`` exchange in each mixture, were all as full.

    They tell each other how many rows they send, then rows go to their experts and results come back; gradients go the
    same way, and a block that is computed again sends its rows again.
    """
    experts = run.transformer.experts
    assert experts is not None
    both = {"dp_replicate": parallel.ep > parallel.dp_shard, "dp_shard": parallel.dp_shard > 1}
    axis = "+".join(name for name, crossed in both.items() if crossed)
    forward = passes * mixtures * (1 + (run.workload.recompute == "full"))
    rows = parallel.micro_batch_sequences * run.workload.sequence_tokens * experts.active
    each = run.workload.element_bytes * rows * run.transformer.width
    times = 2 * forward + 2 * passes * mixtures
    size_bytes = times * each + forward * LOAD * experts.count
    yield Sent(kind="all-to-all", axis=axis, count=times + forward, size_bytes=size_bytes)


def _joined(sent: Iterable[Sent]) -> Iterator[Sent]:
    """Yields one entry for each kind along each axis."""
    by_kind: dict[tuple[str, str], list[Sent]] = {}
    for each in sent:
        by_kind.setdefault((each.kind, each.axis), []).append(each)
    for (kind, axis), parts in by_kind.items():
        count, size_bytes = sum(each.count for each in parts), sum(each.size_bytes for each in parts)
        yield Sent(kind=kind, axis=axis, count=count, size_bytes=size_bytes)


def _between_stages(
    run: RunSpec, parallel: ParallelPlan, at: Place, passes: int, *, table_bytes: float
) -> Iterator[Sent]:
    """Yields what the ranks of a pipeline hand on: hidden states to the next stage, their gradients to the one before.

    A table that the last stage has too costs one more message each way: its gradients are added up.
    """
    if not at.neighbours:
        return
    tokens = parallel.micro_batch_sequences * run.workload.sequence_tokens // parallel.cp
    tokens //= parallel.tp if parallel.sequence_parallel else 1
    each = run.workload.element_bytes * tokens * run.transformer.width
    count = passes * at.neighbours
    size_bytes = count * each + at.shares_table * table_bytes
    for kind in ("send", "receive"):
        yield Sent(kind=kind, axis="pp", count=count + at.shares_table, size_bytes=size_bytes)


def _between_matrices(run: RunSpec, parallel: ParallelPlan, at: Place, *, passes: int) -> Iterator[Sent]:
    """Yields what tensor-parallel ranks send of activations.

    A block has two regions of matrices, the embedding ends one and the head begins one. Each beginning and end is a
    message in the forward pass and, with sequence parallelism, one in the backward pass (Korthikanti et al., 2022,
    figure 5); without it ends are added up in the forward pass and beginnings in the backward pass. A block that is
    computed again sends again, but for its last end, which nothing kept comes after without dropout. The loss asks for
    each row's largest logit, then for two sums.
    """
    model, work = run.transformer, run.workload
    tokens = parallel.micro_batch_sequences * work.sequence_tokens // parallel.cp
    hidden = work.element_bytes * tokens * model.width
    again = at.blocks if work.recompute != "none" else 0
    ends_again = again * (2 if model.dropout.residual else 1)
    # Of classes every rank has the whole head.
    begins, ends = 2 * at.blocks + (at.ends and not model.classes), 2 * at.blocks + at.begins
    if parallel.sequence_parallel:
        joined = at.ends and bool(model.classes)  # tokens for it come together, and their gradients need no sum
        gathers, scatters = begins + ends + joined + 2 * again, begins + ends + ends_again
        for kind, count in (("all-gather", gathers), ("reduce-scatter", scatters)):
            yield Sent(kind=kind, axis="tp", count=passes * count, size_bytes=passes * count * hidden)
    else:
        count = passes * (begins + ends + ends_again)
        yield Sent(kind="all-reduce", axis="tp", count=count, size_bytes=count * hidden)
    if at.ends and not model.classes:
        entries = -(-model.vocabulary // parallel.tp)
        rows = loss_rows(run.kernels.loss_chunk_tokens, tokens=tokens, vocabulary=entries)
        count, each = 2 * passes * -(-tokens // rows), 3 * KEPT_BYTES * tokens
        yield Sent(kind="all-reduce", axis="tp", count=count, size_bytes=passes * each)


def _of_copies(run: RunSpec, parallel: ParallelPlan, own: RankParameters, *, owners: int) -> Iterator[Sent]:
    """Yields the message that adds up gradients of what several ranks keep: a place for each key head."""
    added = own.stream * parallel.sequence_parallel + own.copied * run.transformer.kv_heads
    if added:
        yield Sent(kind="all-reduce", axis="tp", count=1, size_bytes=KEPT_BYTES * added / owners)


def _whole_matrices(run: RunSpec, parallel: ParallelPlan, at: Place, shard: str) -> Iterator[Sent]:
    """Yields what deals whole matrices once a step over the ranks that share them, and brings Muon's directions back.

    As ``model.optimizers.sharded_muon`` does it, stack by stack: all ranks along ``shard`` with all others; along
    ``tp`` each matrix is gathered, and in turns each rank shows a direction to the others. Directions are in what they
    are multiplied in, fp32 on a processor; momentum is in the bf16 to which the iteration rounds.
    """
    tp, owners = parallel.tp, parallel.sharing if shard else 1
    back, dealt = KEPT_BYTES if run.cluster.device.kind == "cpu" else MOMENTUM_BYTES, 0
    for (elements, parts), count in _alike(run.transformer, tp).items():
        left, most = at.blocks * count, owners * tp * max(1, STACK_ELEMENTS // elements)
        while left:
            stack = min(left, most)
            own = len(range(-dealt % owners, stack, owners))
            if shard:
                # The larger of what is sent and what comes; the other way both change places.
                size_bytes = (MOMENTUM_BYTES + back) * elements / parts * max(own, stack / owners)
                yield Sent(kind="all-to-all", axis=shard, count=2, size_bytes=size_bytes)
            if parts > 1:
                size_bytes = MOMENTUM_BYTES * own * elements * tp / parts
                yield Sent(kind="all-gather", axis="tp", count=own, size_bytes=size_bytes)
            if tp > 1:
                turns = -(-own // tp)
                yield Sent(kind="all-gather", axis="tp", count=turns, size_bytes=back * turns * tp * elements)
            dealt, left = dealt + stack, left - stack


def _alike(model: ModelSpec, tp: int) -> Counter[tuple[int, int]]:
    """Returns how many of a block's matrices are of each size, in elements and in different parts along ``tp``.

    Of more ranks than key heads some have the same part.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    for matrix in matrices(model):
        if matrix.part in BLOCK_PARTS:
            parts = min(tp, model.kv_heads) if matrix.name in ("key", "value") else tp
            sizes[matrix.elements, parts] += matrix.copies
    return sizes


def _context(run: RunSpec, parallel: ParallelPlan, at: Place, passes: int) -> Iterator[Sent]:
    """Yields what the ranks of ``cp`` exchange in attention: again in the backward pass, and where that recomputes.

    Keys and values are gathered and their gradients reduced, or tokens go to heads and come back.
    """
    if parallel.cp == 1:
        return
    model, work, ranks = run.transformer, run.workload, parallel.cp
    each = passes * at.blocks
    tokens = parallel.micro_batch_sequences * work.sequence_tokens
    element = work.element_bytes * tokens * model.head_size
    heads, key_heads = model.heads // parallel.tp, max(1, model.kv_heads // parallel.tp)
    forward = 1 + (work.recompute != "none")
    if parallel.context == "gather":
        whole = 2 * element * key_heads
        yield Sent(kind="all-gather", axis="cp", count=forward * each, size_bytes=forward * each * whole)
        yield Sent(kind="reduce-scatter", axis="cp", count=each, size_bytes=each * whole)
        return
    both = element * (2 * heads + 2 * max(key_heads, ranks)) / ranks
    times = (forward + 1) * each
    yield Sent(kind="all-to-all", axis="cp", count=2 * times, size_bytes=times * both)


def _once(model: ModelSpec, parallel: ParallelPlan) -> Iterator[Sent]:
    """Yields what ranks add up once a step along each axis beside gradients; of experts their load too."""
    load = [] if model.experts is None else [LOAD * model.layers * model.experts.count]
    for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp"):
        if getattr(parallel, axis) == 1:
            continue
        sizes = [NORM]
        sizes += [BEFORE] if axis in ("dp_replicate", "dp_shard") else []
        sizes += [AFTER, *load] if axis != "tp" else []
        yield Sent(kind="all-reduce", axis=axis, count=len(sizes), size_bytes=sum(sizes))
