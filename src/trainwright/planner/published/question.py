"""A published row as a question to the planner, or the reason why it is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainwright.core.errors import TrainwrightError
from trainwright.hardware.nodes import cluster, node_size
from trainwright.hardware.stacks import DEFAULT, find_stack, read_stack
from trainwright.planner.flops import count_flops
from trainwright.planner.predict.forecast import model_flops_per_token
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.predict.memory import predict_memory
from trainwright.planner.predict.request import Request
from trainwright.planner.published.rows import Measured, Record, measured
from trainwright.planner.published.shapes import model_of, parallel_of, workload_of
from trainwright.spec.device import ClusterSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row that can be predicted, with what was measured."""

    id: str
    source: str
    line: int
    framework: str
    device: str
    model_class: str
    request: Request
    measured: Measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A row that cannot, and why."""

    id: str
    source: str
    line: int
    reason: str


def questions(records: Iterable[Record]) -> tuple[list[Row], list[Refused]]:
    """Every record as a row or as a refusal."""
    rows: list[Row] = []
    refused: list[Refused] = []
    for record in records:
        try:
            rows.append(question(record))
        except (ValueError, TrainwrightError) as error:
            refused.append(
                Refused(
                    id=record.text("id"),
                    source=record.text("source_repo_or_paper"),
                    line=record.line,
                    reason=str(error),
                )
            )
    return rows, refused


def question(record: Record) -> Row:
    """One record as a row.

    Raises:
        ValueError: a column cannot be read.
        RecipeError: the device is not in the catalogue.
    """
    framework = record.text("framework")
    release, settings = record.notes.get("release", ""), record.notes.get("framework_config", "")
    stack = find_stack(framework, release=release, settings=settings) or read_stack(DEFAULT)
    model = model_of(record)
    parallel, devices = parallel_of(record, stack)
    workload = workload_of(record, stack, parallel)
    cluster = cluster_of(record, devices)
    ask = Request(model=model, workload=workload, parallel=parallel, cluster=cluster, stack=stack)
    ask = filled(ask, record)
    return Row(
        id=record.text("id"), source=record.text("source_repo_or_paper"), line=record.line, framework=framework,
        device=cluster.device.name, model_class=_model_class(record),
        request=ask,
        measured=measured(
            record, devices=devices, batch_tokens=workload.batch_tokens, reports=stack.memory.reports,
            token_flops=counted_flops(ask, record),
        ),
    )  # fmt: skip


def counted_flops(ask: Request, record: Record) -> float:
    """Operations of one token as the row's TFLOP/s count them: attention in full, recomputation if its notes say so.

    Narayanan et al. (2021, equation 3) count the blocks' forward pass twice where they are recomputed, the output head
    once. Adapters' gradients alone make no products with the frozen weights' inputs.
    """
    flops = model_flops_per_token(ask.model, ask.workload)
    if "counts recompute" in record.text("notes") and ask.workload.recompute == "full":
        counted = count_flops(ask.model, sequences=1, sequence_tokens=ask.workload.sequence_tokens)
        flops += (counted.linear + counted.attention) / ask.workload.sequence_tokens
    return flops


def filled(ask: Request, record: Record) -> Request:
    """The question with the micro batch that a row does not say: the largest that fits, as people choose it.

    Micro batches are the rank's sequences over powers of two. Where not even the smallest fits, and the row does not
    say what is recomputed, all is. Pipelines keep what ``parallel_of`` gave them.
    """
    plan = ask.parallel
    if record.text("micro_batch") or not record.text("global_batch") or plan.pp > 1:
        return ask
    local = ask.workload.batch_tokens // ask.workload.sequence_tokens // (plan.dp_shard * plan.dp_replicate)
    sizes = [local >> power for power in range(max(1, local).bit_length()) if local % (1 << power) == 0]
    plans = [replace(plan, micro_batch_sequences=size) for size in sizes if size]
    said = record.text("activation_checkpointing")
    for recompute in dict.fromkeys((ask.workload.recompute, ask.workload.recompute if said else "full")):
        workload = replace(ask.workload, recompute=recompute)
        layouts = Layouts.of(plans, [recompute] * len(plans), workload)
        memory = predict_memory(ask.model, workload, layouts, ask.cluster, ask.stack)
        for chosen, fits in zip(plans, memory.fits(ask.cluster.device), strict=True):
            if fits:
                return replace(ask, workload=workload, parallel=chosen)
    return ask


def _model_class(record: Record) -> str:
    arch = record.text("arch")
    return "moe" if arch == "moe" else "encoder" if arch == "bert" else "decoder"


def cluster_of(record: Record, devices: int) -> ClusterSpec:
    """The machines: the row's device in its usual node, and what the row's note says of node and network.

    Notes that are understood: ``4-GPU nodes``, ``4x OmniPath 100``, ``8x200Gb HDR``, ``1600 Gbps RoCE inter-node`` (a
    node's sum), ``400Gb/s RDMA per GPU``.
    """
    where = f"line {record.line}, column gpu"
    name, note = record.text("gpu"), record.text("interconnect_note")
    full = node_size(name, where=where)
    if found := re.search(r"([1-9]\d*)-GPU nodes", note):
        full = int(found[1])
    per_node = min(full, devices)
    nodes = -(-devices // per_node)
    text = f"{nodes}x{per_node}x{name}" if nodes > 1 else f"{per_node}x{name}"
    if found := re.search(r"(\d+)\s*x\s*(?:[A-Za-z]+ )?(\d{2,3})(?:Gb|\b)", note):
        return (
            cluster(text, scale_out=f"{found[2]}Gb/s", rails=int(found[1]), where=where)
            if nodes > 1
            else cluster(text, where=where)
        )
    if found := re.search(r"(\d+) Gbps", note):
        return cluster(text, scale_out=f"{int(found[1]) // full}Gb/s", rails=full, where=where)
    if found := re.search(r"(\d+)Gb/s\D*per GPU", note):
        return cluster(text, scale_out=f"{found[1]}Gb/s", rails=full, where=where)
    return cluster(text, where=where)
