"""The stage: ``machine.json`` in, ``plan.json`` out."""

from __future__ import annotations

import json

from trainwright.artifact.reading import PLAN, counted_facts
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.artifact.summaries import PlanSummary
from trainwright.core.errors import DoesNotFit
from trainwright.core.records import to_json
from trainwright.core.units import YEAR_S, format_bytes, format_seconds
from trainwright.hardware.machine.record import FILE, read_machine
from trainwright.planner.evidence.finished import read_ledgers
from trainwright.planner.evidence.ledger import ledgers_of
from trainwright.planner.plan.estimated_facts import estimated_facts
from trainwright.render.plans.local import verdict
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.plan.build import build_plan

MOST_YEARS = 1_000


def run(context: Context) -> StageResult:
    """Plan on the doctor's numbers, on the ledger of finished runs as it stands now, and on the dataset if it is there.

    Of a later ledger or dataset the plan is not made again: it is the prediction that the run is held against.

    Raises:
        DataError: the machine record is damaged.
        DoesNotFit: the run needs more memory than there is; names the smallest change that fits;
            or more time than anybody has.
    """
    examined, events = context.input("machine"), context.events
    examined.verify()
    ledger = read_ledgers(ledgers_of(context.root))
    for line in ledger.broken:
        events.message(f"ledger, line skipped: {line}")
    plan = build_plan(context.recipe, read_machine(examined.file(FILE)), _facts(context), ledger)
    estimate = plan.estimate
    if not estimate.fits:
        raise DoesNotFit(
            "the run does not fit in memory",
            where=plan.cluster.device.name,
            seen=format_bytes(estimate.memory.total_bytes),
            expected=f"at most {format_bytes(estimate.memory_available_bytes)}",
            fix=f"try: {' '.join(plan.rejected[0].overrides) or plan.rejected[0].name}",
        )
    if estimate.seconds.low > MOST_YEARS * YEAR_S:
        raise DoesNotFit(
            "nobody waits that long for a run",
            where="train.duration",
            seen=f"{context.recipe.train.duration}, which takes {format_seconds(estimate.seconds.mid)} here",
            expected=f"{MOST_YEARS:,} years at most",
            fix="train for less, or see what a cluster takes: trainwright plan RECIPE --on 64x8xh100-sxm",
        )
    events.message(verdict(plan))
    write_atomically(context.out / PLAN, json.dumps(to_json(plan), indent=1).encode() + b"\n")
    summary = PlanSummary(
        fits=estimate.fits,
        precision=plan.workload.precision,
        parameters=sum(plan.parameters.values()),
        steps=plan.workload.steps,
        micro_batch=plan.parallel.micro_batch_sequences,
        compile=plan.parallel.compile,
        memory_bytes=estimate.memory.total_bytes,
        seconds=estimate.seconds.mid,
        tokens_per_s=estimate.tokens_per_s,
        mfu=estimate.mfu,
        bottleneck=estimate.bottleneck,
    )
    return StageResult(summary=to_json(summary))


def _facts(context: Context) -> DatasetFacts:
    dataset, corpus_bytes = context.optional_input("dataset"), context.digests.get("corpus_bytes")
    if dataset is not None:
        return counted_facts(dataset)
    return estimated_facts(context.recipe, corpus_bytes=None if corpus_bytes is None else int(corpus_bytes))
