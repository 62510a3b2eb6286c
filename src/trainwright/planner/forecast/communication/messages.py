"""How many messages a rank of this project's trainer takes part in, and bytes: of data and context parallelism.

The seconds of the same volumes are ``exchange``'s. A sharded network is gathered in as many pieces as it has blocks and
one more, the root: embedding, last norm and head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainwright.planner.counts.parallel.dry_run import Sent
from trainwright.planner.counts.parameters import parameter_counts, total_parameters
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan

KEPT_BYTES = 4
"""Of a weight and of a gradient: both are fp32, and the root is gathered so too."""
BEFORE, AFTER, NORM = 8, 4, 8
"""Bytes of what all ranks add up once a step: weight of the batch, summed loss, square of the gradient's norm."""


def messages(run: RunSpec, parallel: ParallelPlan, *, passes: int) -> tuple[Sent, ...]:
    """Returns what a step of so many micro batches sends, by kind and axis.

    ZeRO-3 gathers every piece before each forward pass, and blocks again before each backward pass; stages below it
    keep what they gathered through the step. From ZeRO-2 on gradients are reduced after each micro batch, below after
    the last. Copies of a shard are added up once a step (Rajbhandari et al., 2020, section 7). Ranks of ``cp`` share
    as those of ``dp_shard`` do; without sharing (stage 0) they have copies.
    """
    sizes = {name: getattr(parallel, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    model = run.transformer
    counts = parameter_counts(model)
    every = total_parameters(model)
    root = sum(counts.get(name, 0) for name in ("embedding", "positions", "head")) + _last_norm(run)
    blocks, pieces = every - root, model.blocks + 1
    found: dict[tuple[str, str], Sent] = {}
    copied = parallel.zero_stage == 0 and parallel.dp_shard == 1
    owners = 1 if copied else parallel.dp_shard * parallel.cp
    shard = "+".join(name for name in ("dp_shard", "cp") if sizes[name] > 1)
    copies = "+".join(name for name in ("dp_replicate", "cp")[: 1 + copied] if sizes[name] > 1)
    if owners > 1:
        whole = run.workload.element_bytes * blocks + KEPT_BYTES * root
        again = run.workload.element_bytes * blocks
        rounds = passes if parallel.zero_stage == 3 else 1
        twice = parallel.zero_stage == 3
        found["all-gather", shard] = Sent(
            kind="all-gather",
            axis=shard,
            count=rounds * (pieces + twice * model.blocks),
            size_bytes=rounds * (whole + twice * again),
        )
        reductions = passes if parallel.zero_stage >= 2 else 1
        found["reduce-scatter", shard] = Sent(
            kind="reduce-scatter", axis=shard, count=reductions * pieces, size_bytes=reductions * KEPT_BYTES * every
        )
    for sent in _context(run, parallel, passes):
        found[sent.kind, sent.axis] = _both(found.get((sent.kind, sent.axis)), sent)
    for axis, count, size_bytes in _once(sizes, copies, pieces=pieces, shard_bytes=KEPT_BYTES * every / owners):
        sent = Sent(kind="all-reduce", axis=axis, count=count, size_bytes=size_bytes)
        found["all-reduce", axis] = _both(found.get(("all-reduce", axis)), sent)
    return tuple(found.values())


def _context(run: RunSpec, parallel: ParallelPlan, passes: int) -> Iterator[Sent]:
    """Yields what the ranks of ``cp`` exchange in attention: again in the backward pass, and where that recomputes.

    Keys and values are gathered and their gradients reduced, or tokens go to heads and come back.
    """
    if parallel.cp == 1:
        return
    model, work, ranks = run.transformer, run.workload, parallel.cp
    each = passes * model.layers
    tokens = parallel.micro_batch_sequences * work.sequence_tokens
    element = work.element_bytes * tokens * model.head_size / parallel.tp
    forward = 1 + (work.recompute != "none")
    if parallel.context == "gather":
        whole = 2 * element * model.kv_heads
        yield Sent(kind="all-gather", axis="cp", count=forward * each, size_bytes=forward * each * whole)
        yield Sent(kind="reduce-scatter", axis="cp", count=each, size_bytes=each * whole)
        return
    key_heads = max(model.kv_heads, ranks * parallel.tp)
    both = element * (2 * model.heads + 2 * key_heads) / ranks
    times = (forward + 1) * each
    yield Sent(kind="all-to-all", axis="cp", count=2 * times, size_bytes=times * both)


def _both(before: Sent | None, sent: Sent) -> Sent:
    """Returns messages of one kind and axis together."""
    if before is None:
        return sent
    return replace(sent, count=before.count + sent.count, size_bytes=before.size_bytes + sent.size_bytes)


def _once(sizes: dict[str, int], copies: str, *, pieces: int, shard_bytes: float) -> Iterator[tuple[str, int, float]]:
    """Yields axis, count and bytes of the all-reduces of a step."""
    if copies:
        yield copies, pieces, shard_bytes
    for axis, size in sizes.items():
        if size > 1:
            yield axis, 1, NORM
            if axis in ("dp_replicate", "dp_shard"):
                yield axis, 1, BEFORE
            if axis in ("dp_replicate", "dp_shard", "cp"):
                yield axis, 1, AFTER


def _last_norm(run: RunSpec) -> int:
    """Returns the parameters of the norm before the head."""
    model = run.transformer
    return model.width * (2 if model.norm == "layernorm" and model.norm_bias else 1)
