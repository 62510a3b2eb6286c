"""A published row as a question to the planner, or the reason why it is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from trainwright.core.errors import TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.units import MIB, format_bytes
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.nodes import cluster, node_size
from trainwright.hardware.catalogue.stacks import DEFAULT, find_stack, read_stack, unknown_stack
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.methods import prompt_tokens
from trainwright.planner.counts.update import UNFUSED_BYTES
from trainwright.planner.counts.work import peak_flops_per_s
from trainwright.planner.evidence.columns import axes_of, model_of, parallel_of
from trainwright.planner.evidence.finished import FinishedRun, placed_run
from trainwright.planner.evidence.notes import refuse_columns, unused
from trainwright.planner.evidence.rows import Measured, Record, measured
from trainwright.planner.evidence.workload_columns import mean_tokens, workload_of
from trainwright.planner.forecast.forecast import model_flops_per_token
from trainwright.planner.forecast.memory.table import predict_memory
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.stack import Stack

LEDGER = "ledger"
"""The source that rows of our own finished runs have."""
MOST_OF_PEAK = 10.0
"""Times a device's peak that a table's row may compute: what is printed for one device is at times a whole node's (two
of 1,375 published rows are at 1.3 and 8.7). More is no measurement."""
LEAST_TOKENS_PER_S, MOST_TOKENS_PER_S = 1e-3, 1e9
"""Of a device, whatever its peak: published rows lie between 16 and 468,110."""
MOST_OF_MEMORY = 2.0
"""Times a device's memory that a table's row may hold: a device may be named without its size. More is another unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row that can be predicted, with what was measured."""

    id: str
    source: str
    line: int
    framework: str
    placed: PlacedRun
    measured: Measured
    mean_tokens: int | None = None
    """Of the sequences, where lengths vary and ``placed`` has the longest; None where all are equal."""
    prompt_tokens: int = 0
    """Learnt ones before each sequence, which the network computes and no source counts."""
    unused: tuple[str, ...] = ()
    """Settings in its notes that nobody reads."""

    @property
    def timed(self) -> PlacedRun:
        """Returns what time is asked of: sequences of the mean length, with prompts; memory is that of the longest."""
        work = self.placed.run.workload
        mean = self.mean_tokens if work.example_tokens is None else None  # padded lengths are counted
        if mean is None and not self.prompt_tokens:
            return self.placed
        tokens = (mean or work.sequence_tokens) + self.prompt_tokens
        other = replace(work, sequence_tokens=tokens, batch_tokens=work.batch_sequences * tokens)
        return replace(self.placed, run=replace(self.placed.run, workload=other))

    @property
    def device(self) -> str:
        """Returns the name of the device."""
        return self.placed.run.cluster.device.name

    @property
    def model_class(self) -> str:
        """Returns the kind of network, ``moe`` for a mixture of experts."""
        model = self.placed.run.transformer
        return "moe" if model.experts is not None else model.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A row that cannot, and why."""

    id: str
    source: str
    line: int
    reason: str


def questions(runs: Iterable[Record | FinishedRun]) -> tuple[list[Row], list[Refused]]:
    """Returns every run as a row or as a refusal."""
    rows: list[Row] = []
    refused: list[Refused] = []
    for place, run in enumerate(runs, start=1):
        try:
            rows.append(row_of(run, line=place) if isinstance(run, FinishedRun) else question(run))
        except (ValueError, TrainwrightError) as error:
            if isinstance(run, FinishedRun):
                name, source, line = run.run, LEDGER, place
            else:
                name, source, line = run.text("id"), run.text("source_repo_or_paper"), run.line
            refused.append(Refused(id=name, source=source, line=line, reason=str(error)))
    return rows, refused


def row_of(run: FinishedRun, *, line: int) -> Row:
    """Returns a finished run of our own as a row; raises as ``placed_run``, ValueError where it counts as another."""
    if reason := run.unlike({}):
        raise ValueError(reason)
    placed = placed_run(run)
    stack = placed.run.stack
    seen = Measured(
        tokens_per_s=run.workload.batch_tokens / run.step_s / run.devices,
        derived=False,
        memory_bytes=run.peak_bytes,
        memory_kind=stack.memory.reports,
        out_of_memory=False,
    )
    return Row(id=run.run, source=LEDGER, line=line, framework=stack.name, placed=placed, measured=seen)


def question(record: Record) -> Row:
    """Returns one record as a row.

    Raises:
        ValueError: a column cannot be read, the batch is no multiple of what its ranks take at once, or more was
            measured than the device has or computes.
        RecipeError: the device is not in the catalogue.
    """
    record.refuse_surplus()
    refuse_columns(record.values, record.notes)
    framework = record.text("framework")
    release, settings = record.notes.get("release", ""), record.notes.get("framework_config", "")
    stack = find_stack(framework, release=release, settings=settings)
    if stack is None:
        divides = any(record.whole(name, 1) > 1 for name in ("tp", "pp", "ep"))
        stack = unknown_stack(divides=divides, shards=axes_of(record, read_stack(DEFAULT)).kind)
    stack, model = with_update_of(stack, record), model_of(record)
    parallel, devices = parallel_of(record, stack)
    workload = workload_of(record, stack, parallel)
    cluster = cluster_of(record, devices)
    run = RunSpec(model=model, workload=workload, cluster=cluster, stack=stack)
    placed = with_micro_batch(PlacedRun(run=run, parallel=parallel), record)
    _refuse_uneven(placed)
    flops, reports = counted_flops(placed.run, record), stack.memory.reports
    mean = mean_tokens(record, workload.sequence_tokens)
    prompt = prompt_tokens(workload.adapter, model.width)
    batch_tokens = workload.batch_sequences * (mean or workload.sequence_tokens)
    seen = measured(record, devices=devices, batch_tokens=batch_tokens, reports=reports, token_flops=flops)
    if prompt and seen.tokens_per_s:
        length = mean or workload.sequence_tokens
        seen = replace(seen, tokens_per_s=seen.tokens_per_s * (length + prompt) / length)
    _refuse_overfull(placed.run, record, seen)
    row = Row(
        id=record.text("id"),
        source=record.text("source_repo_or_paper"),
        line=record.line,
        framework=framework,
        placed=placed,
        measured=seen,
        mean_tokens=mean,
        prompt_tokens=prompt,
        unused=unused(record.notes),
    )
    _refuse_rate(row)
    return row


def share_of_peak(row: Row) -> float | None:
    """Returns the part of its device's dense peak that a row's measured tokens take; None where nobody knows.

    Of attention the pairs count that a mask leaves, the least that kernels compute.
    """
    run, measured = row.timed.run, row.measured.tokens_per_s
    peak = peak_flops_per_s(run.cluster.device, run.workload.precision)
    if measured is None or not run.model.is_divisible or not peak:
        return None
    tokens = run.workload.tokens_per_sequence
    hidden = 3 * count_flops(run.model, sequences=1, sequence_tokens=tokens).hidden / tokens
    return measured * (model_flops_per_token(run.model, run.workload) - hidden) / peak


def _refuse_rate(row: Row) -> None:
    """Raises ValueError for tokens per second that no device computes, whatever its peak or far beyond it."""
    rate = row.measured.tokens_per_s
    if (share := share_of_peak(row) or 0.0) > MOST_OF_PEAK:
        what = f"{rate:.3g} tokens/s of a device are {share:.3g} times its peak"
        raise ValueError(f"{what}, expected what one device computes")
    if not LEAST_TOKENS_PER_S <= (rate or 1.0) <= MOST_TOKENS_PER_S:
        expected = f"from {LEAST_TOKENS_PER_S:g} to {MOST_TOKENS_PER_S:g}"
        raise ValueError(f"{rate:.3g} tokens/s of a device, expected {expected}")


def _refuse_overfull(run: RunSpec, record: Record, seen: Measured) -> None:
    """Raises ValueError for no memory, or far more than the device has; what was computed, or ran out, may be more."""
    device, most = run.cluster.device, run.cluster.device.memory_bytes * MOST_OF_MEMORY
    if seen.memory_bytes is not None and seen.memory_bytes < MIB:
        raise ValueError(f"peak_mem_gib_per_gpu is {record.text('peak_mem_gib_per_gpu')}, expected a MiB at least")
    if seen.out_of_memory or "analytic" in record.text("notes").lower() or (seen.memory_bytes or 0) <= most:
        return
    has = f"about the {format_bytes(device.memory_bytes)} of {device.name} at most"
    raise ValueError(f"peak_mem_gib_per_gpu is {record.text('peak_mem_gib_per_gpu')}, expected {has}")


def _refuse_uneven(placed: PlacedRun) -> None:
    """Raises ValueError where the batch is not whole micro batches of all data-parallel ranks: no such step was run."""
    plan, sequences = placed.parallel, placed.run.workload.batch_sequences
    ranks, micro = plan.dp_replicate * plan.dp_shard, plan.micro_batch_sequences
    if sequences < ranks:
        expected = "a sequence of the batch for each of its data-parallel devices"
        raise ValueError(f"global_batch is {sequences}, expected at least {ranks}: {expected}")
    if sequences % (ranks * micro):
        expected = f"a multiple of {ranks * micro}: micro_batch {micro} on each of {ranks} data-parallel ranks"
        raise ValueError(f"global_batch is {sequences}, expected {expected}")


def with_update_of(stack: Stack, record: Record) -> Stack:
    """Returns the stack with the update that the row's optimizer names, where its own is one fused kernel.

    Hugging Face's ``adamw_torch`` is torch's AdamW without ``fused``, which updates all parameters at once and copies
    each (transformers 5.23.0, trainer_optimizer.py; torch.optim.AdamW, ``foreach``).
    """
    copies, gradients = stack.memory.update_copies, stack.memory.flat_gradients
    name = record.text("optimizer").lower()
    if name in ("adamw_torch", "adamw_hf"):
        stack = replace(stack, update_bytes=UNFUSED_BYTES)
    if name != "adamw_torch" or copies or gradients:
        return stack
    return replace(stack, memory=replace(stack.memory, update_copies=1.0))


def counted_flops(run: RunSpec, record: Record) -> float:
    """Returns the operations of one token as the row counts them: attention in full, recomputation by its notes.

    Narayanan et al. (2021, equation 3) count the blocks' forward pass twice where they are recomputed, the output head
    once. Adapters' gradients alone make no products with the frozen weights' inputs.
    """
    flops = model_flops_per_token(run.model, run.workload)
    if "counts recompute" in record.text("notes") and run.workload.recompute == "full":
        counted = count_flops(run.model, sequences=1, sequence_tokens=run.workload.sequence_tokens)
        flops += (counted.linear + counted.attention) / run.workload.sequence_tokens
    return flops


def with_micro_batch(placed: PlacedRun, record: Record) -> PlacedRun:
    """Returns the question with the micro batch that a row does not say: the largest that fits, as people choose it.

    Micro batches are the rank's sequences over powers of two. Where not even the smallest fits, and the row does not
    say what is recomputed, all is; updates in the backward pass leave one. Pipelines keep what ``parallel_of`` gave.
    """
    run, plan = placed.run, placed.parallel
    if record.text("micro_batch") or not record.text("global_batch") or plan.pp > 1:
        return placed
    local = run.workload.batch_tokens // run.workload.sequence_tokens // (plan.dp_shard * plan.dp_replicate)
    if run.workload.update_in_backward:
        return PlacedRun(run=run, parallel=replace(plan, micro_batch_sequences=local))
    sizes = [local >> power for power in range(max(1, local).bit_length()) if local % (1 << power) == 0]
    plans = [replace(plan, micro_batch_sequences=size) for size in sizes if size]
    wanted = record.text("activation_checkpointing")
    for recompute in dict.fromkeys((run.workload.recompute, run.workload.recompute if wanted else "full")):
        workload = replace(run.workload, recompute=recompute)
        layouts = Layouts.of(plans, [recompute] * len(plans), workload)
        memory = predict_memory(replace(run, workload=workload), layouts)
        for chosen, fits in zip(plans, memory.fits(run.cluster.device), strict=True):
            if fits:
                return PlacedRun(run=replace(run, workload=workload), parallel=chosen)
    return placed


def cluster_of(record: Record, devices: int) -> ClusterSpec:
    """Returns the machines: the row's device in its usual node, and what the row's note says of node and network.

    Notes that are understood: ``4-GPU nodes``, ``4x OmniPath 100``, ``8x200Gb HDR``, ``1600 Gbps RoCE inter-node`` (a
    node's sum), ``400Gb/s RDMA per GPU``.
    """
    where = f"line {record.line}, column gpu"
    name, note = device(record.text("gpu"), where=where).name, record.text("interconnect_note")
    full = node_size(name, where=where)
    if match := re.search(r"([1-9]\d*)-GPU nodes", note):
        full = int(match[1])
    per_node = min(full, devices)
    nodes = -(-devices // per_node)
    text = f"{nodes}x{per_node}x{name}" if nodes > 1 else f"{per_node}x{name}"
    network = None
    if match := re.search(r"(\d+)\s*x\s*(?:[A-Za-z]+ )?(\d{2,3})(?:Gb|\b)", note):
        # A node alone has no network.
        network, full = f"{match[2]}Gb/s" if nodes > 1 else None, int(match[1])
    elif match := re.search(r"(\d+) Gbps", note):
        network = f"{int(match[1]) // full}Gb/s"
    elif match := re.search(r"(\d+)Gb/s\D*per GPU", note):
        network = f"{match[1]}Gb/s"
    return cluster(text, scale_out=network, rails=full if network else None, where=where)
