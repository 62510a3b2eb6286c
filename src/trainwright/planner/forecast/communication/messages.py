"""How many messages a rank of this project's trainer takes part in, and of how many bytes: those of data parallelism.

The seconds of the same volumes are ``exchange``'s. A sharded network is gathered in as many pieces as it has blocks and
one more, the root: embedding, last norm and head.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.planner.counts.parallel.dry_run import Sent
from trainwright.planner.counts.parameters import parameter_counts, total_parameters
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan

KEPT_BYTES = 4
"""Of a weight and of a gradient: both are fp32, and the root is gathered so too."""
BEFORE, AFTER, NORM = 8, 4, 8
"""Bytes of what all ranks add up once a step: weight of the batch, summed loss, square of the gradient's norm."""


def messages(run: RunSpec, parallel: ParallelPlan, *, passes: int) -> tuple[Sent, ...]:
    """Returns what data parallelism sends in a step of so many micro batches, by kind and axis.

    ZeRO-3 gathers every piece before each forward pass, and blocks again before each backward pass; stages below it
    keep what they gathered through the step. From ZeRO-2 on gradients are reduced after each micro batch, below after
    the last. Copies of a shard are added up once a step (Rajbhandari et al., 2020, section 7).
    """
    sizes = {name: getattr(parallel, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    model = run.transformer
    counts = parameter_counts(model)
    every = total_parameters(model)
    root = sum(counts.get(name, 0) for name in ("embedding", "positions", "head")) + _last_norm(run)
    blocks, pieces = every - root, model.blocks + 1
    found: dict[tuple[str, str], Sent] = {}
    owners = parallel.dp_shard * parallel.cp
    shard = "+".join(name for name in ("dp_shard", "cp") if sizes[name] > 1)
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
    for axis, count, size_bytes in _once(sizes, pieces=pieces, shard_bytes=KEPT_BYTES * every / owners):
        before = found.get(("all-reduce", axis), Sent(kind="all-reduce", axis=axis, count=0, size_bytes=0.0))
        found["all-reduce", axis] = Sent(
            kind="all-reduce", axis=axis, count=before.count + count, size_bytes=before.size_bytes + size_bytes
        )
    return tuple(found.values())


def _once(sizes: dict[str, int], *, pieces: int, shard_bytes: float) -> Iterator[tuple[str, int, float]]:
    """Yields axis, count and bytes of the all-reduces of a step."""
    if sizes["dp_replicate"] > 1:
        yield "dp_replicate", pieces, shard_bytes
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
