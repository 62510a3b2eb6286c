"""A published row as a question to the planner, or the reason why it is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.core.errors import TrainwrightError
from trainwright.hardware.catalogue import device
from trainwright.hardware.stacks import DEFAULT, find_stack, read_stack
from trainwright.planner.predict.request import Request
from trainwright.planner.published.rows import Measured, Record, measured
from trainwright.planner.published.shapes import model_of, parallel_of, workload_of
from trainwright.spec.device import ClusterSpec, NodeSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row that can be predicted, with what was measured."""

    id: str
    source: str
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
    stack = find_stack(framework) or read_stack(DEFAULT)
    model = model_of(record)
    parallel, devices = parallel_of(record, stack)
    workload = workload_of(record, stack, parallel)
    cluster = cluster_of(record, devices)
    return Row(
        id=record.text("id"), source=record.text("source_repo_or_paper"), framework=framework,
        device=cluster.device.name, model_class=_model_class(record),
        request=Request(model=model, workload=workload, parallel=parallel, cluster=cluster, stack=stack),
        measured=measured(record, devices=devices, batch_tokens=workload.batch_tokens, reports=stack.memory.reports),
    )  # fmt: skip


def _model_class(record: Record) -> str:
    arch = record.text("arch")
    return "moe" if arch == "moe" else "encoder" if arch == "bert" else "decoder"


def cluster_of(record: Record, devices: int) -> ClusterSpec:
    """The machines: the row's device, and what its note says of the links."""
    spec = device(record.text("gpu"), where=f"line {record.line}, column gpu")
    per_node = min(8, devices)
    return ClusterSpec(node=NodeSpec(device=spec, devices=per_node), nodes=math.ceil(devices / per_node))
