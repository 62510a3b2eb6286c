"""A run as its stages would leave it behind: every artefact that the report reads, with plausible made-up numbers."""

from __future__ import annotations

import json
import math
import random
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.artifact.events import Events
from trainwright.artifact.workspace import Workspace
from trainwright.core.records import to_json
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.probes import BandwidthProbe, DiskProbe, MatmulProbe, Probes, Timing
from trainwright.hardware.machine.record import Finding, Machine
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.evidence.audit import Audit, AuditRow
from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.manifest import KINDS, Manifest
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.plan import Assumption, Estimate, Interval, Plan, Rental
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan, Workload
from trainwright.stages.report.run_record import RunRecord

STEPS, BATCH_TOKENS, MIB = 1000, 4096, 2.0**20
CURVE = {"title": "By context", "x": "from_tokens", "x_title": "tokens before", "y": "loss", "y_title": "nats"}


def make_recipe(**changes) -> Recipe:
    keys = {
        "name": "quickstart",
        "model": {"layers": 4, "width": 256, "heads": 4, "context_tokens": 512, "tied": True},
        "data": {"sources": [{"kind": "python-stdlib"}], "tokenizer": {"vocabulary": 4096}},
        "train": {"sequence_tokens": 512, "batch_tokens": BATCH_TOKENS, "duration": f"{STEPS} steps"},
        "evaluate": {"prompts": ["def add(a, b):\n"]},
    }
    return Recipe.model_validate(keys | changes)


def machine() -> Machine:
    facts = MachineFacts(
        system="Linux",
        release="6.1",
        architecture="x86_64",
        bits=64,
        python="3.11.2",
        torch="2.13.0",
        cpu="Example 9000 (2 cores)",
        cores=2,
        logical_cores=2,
        cpu_features=("avx2", "fma", "avx512f", "amx_bf16"),
        cpu_busy=0.08,
        memory_bytes=int(16384 * MIB),
        memory_available_bytes=int(12000 * MIB),
        disk_path="data",
        disk_free_bytes=int(60000 * MIB),
        compiler="g++",
        python_headers=True,
    )
    timing = Timing(median_s=0.01, low_s=0.009, high_s=0.012, fastest_s=0.009, repetitions=9)
    matmul = tuple(
        MatmulProbe(
            dtype=dtype,
            direction=direction,
            tokens=tokens,
            inputs=256,
            outputs=768,
            timing=Timing(
                median_s=tokens * seconds,
                low_s=tokens * seconds,
                high_s=tokens * seconds,
                fastest_s=tokens * seconds,
                repetitions=9,
            ),
        )
        for dtype, seconds in (("fp32", 3.9e-6), ("bf16", 9.1e-7))
        for direction in ("forward", "grad_input", "grad_weight")
        for tokens in (2048,)
    )
    read_by_the_report = {
        "device_kind": "cpu",
        "device_name": "AVX512",
        "threads": 2,
        "thorough": True,
        "matmul": matmul,
        "bandwidth": (BandwidthProbe(working_set_bytes=int(192 * MIB), timing=timing),),
        "disk": DiskProbe(size_bytes=int(256 * MIB), write_s=0.4, read_s=0.1, digest_s=0.2),
        "launch_s": 3e-6,
        "baseline_bytes": int(310 * MIB),
        "import_s": 2.1,
        "probe_s": 14.0,
    }
    read_by_the_report |= {"measured_unix_s": 1.8e9, "cpu_busy": 0.0}
    unread = [each for each in fields(Probes) if each.name not in read_by_the_report and each.default is MISSING]
    probes = Probes(**read_by_the_report, **{each.name: () for each in unread})
    finding = Finding(what="other work uses 8 % of the processors", fix="close it before measuring")
    return Machine(facts=facts, probes=probes, findings=(finding,))


def rentals() -> tuple[Rental, ...]:
    offer = {"provider": "example-cloud", "price_kind": "on_demand", "source": "", "as_of": "2026-10-01"}
    nowhere = {"provider": "", "price_kind": "", "source": "", "as_of": ""}
    return (
        Rental(device="t4", usd_per_device_hour=0.35, fits=True, seconds=61.0, usd=0.0059, seconds_low=48.0, **offer),
        Rental(device="l4", usd_per_device_hour=0.2, fits=True, seconds=33.0, usd=0.0018, seconds_high=44.0, **offer),
        Rental(
            device="h100-sxm",
            usd_per_device_hour=None,
            fits=True,
            seconds=7.0,
            usd=None,
            reason="no checked price is known",
            **nowhere,
        ),
        Rental(
            device="rtx-2080-ti",
            usd_per_device_hour=0.12,
            fits=False,
            seconds=0.0,
            usd=None,
            reason="has no bf16",
            **offer,
        ),
    )


def plan(recipe: Recipe) -> Plan:
    model = recipe.model.spec(vocabulary=4096)
    device = DeviceSpec(
        name="cpu",
        kind="cpu",
        vendor="example",
        memory_bytes=int(12000 * MIB),
        bytes_per_s=2e10,
        flops_per_s={"bf16": 4e11},
    )
    phases = PhaseTimes(data_wait=0.0004, preprocess=0.0001, forward=0.066, backward=0.128, update=0.019, other=0.002)
    run_phases = PhaseTimes(**phases.scaled(STEPS).as_dict() | {"evaluate": 14.0, "checkpoint": 1.5})
    total = run_phases.total_s
    return Plan(
        model=model,
        parameters={"total": total_parameters(model)},
        workload=Workload(
            sequence_tokens=512, batch_tokens=BATCH_TOKENS, steps=STEPS, precision="bf16", optimizer="muon"
        ),
        cluster=ClusterSpec(node=NodeSpec(device=device, devices=1)),
        parallel=ParallelPlan(micro_batch_sequences=8, compile=True, threads=2),
        estimate=Estimate(
            fits=True,
            memory=MemoryUse(
                weights=16 * MIB,
                gradients=16 * MIB,
                optimizer=27 * MIB,
                activations=210 * MIB,
                logits=18 * MIB,
                workspace=320 * MIB,
            ),
            memory_available_bytes=12000 * MIB,
            phases=phases,
            run_phases=run_phases,
            tokens_per_s=18800.0,
            mfu=0.44,
            seconds=Interval(low=total * 0.9, mid=total, high=total * 1.2),
            usd=None,
            bottleneck="backward",
            assumptions=(
                Assumption("matrix products, bf16", 4.3e11, "FLOP/s", "probed", "2048x256x768", key="products_bf16"),
                Assumption("process before the model", 300 * MIB, "bytes", "probed", key="process"),
                Assumption("memory bandwidth", 19.2, "GB/s", "probed", key="bandwidth"),
                Assumption("range of the time", 0.2, "", "default", "spread of the probes", key="time_range"),
            ),
        ),
        rentals=rentals(),
    )


def summary() -> dict:
    phases = PhaseTimes(
        data_wait=0.3,
        preprocess=0.1,
        host_to_device=0.05,
        forward=69.0,
        backward=133.0,
        update=17.5,
        checkpoint=1.9,
        evaluate=15.2,
        other=2.6,
    )
    return {
        "steps": STEPS,
        "tokens": STEPS * BATCH_TOKENS,
        "parameters": 4_722_944,
        "precision": "bf16",
        "train_loss": 2.41,
        "validation": {"metrics": metrics(2.51, 1.713, 12.3), "unit": "token", "count": 100_000, "record": {}},
        "phases": phases.as_dict(),
        "step_phases": phases.scaled(1 / STEPS).as_dict() | {"evaluate": 0.0, "checkpoint": 0.0},
        "memory": MemoryUse(
            weights=16 * MIB,
            gradients=16 * MIB,
            optimizer=27 * MIB,
            activations=205 * MIB,
            logits=21 * MIB,
            workspace=331 * MIB,
        ).as_dict(),
        "process_bytes": 310 * MIB,
        "tokens_per_s": 18_420.0,
        "flops_per_token": 2.9e7,
        "peak_flops_per_s": 4.3e11,
        "mfu": 0.42,
        "execution": {"device": "cpu", "threads": 2, "compiled": True, "micro_batch": 8, "resumes": 1},
    }


def write_events(path: Path, *, steps: int = STEPS, every: int = 5) -> None:
    noise = random.Random(4)
    with Events(path, run="quickstart") as events:
        for step in range(every, steps + 1, every):
            loss = 2.1 + 6.3 * math.exp(-step / 45) + 1.3 * math.exp(-step / 400)
            events.metric("train/loss", loss + noise.gauss(0, 0.07), step=step, unit="nats/token")
            share = min(step / 40, 1 - step / steps)
            events.metric("train/lr", 3e-3 * share, step=step)
            events.metric("train/muon_lr", 0.02 * share, step=step)
            events.metric("train/grad_norm", 0.4 + noise.random() * 0.3, step=step)
            events.metric("train/tokens_per_s", 18400 + noise.gauss(0, 300), step=step, unit="tokens/s")
            events.metric("train/mfu", 0.42 + noise.gauss(0, 0.006), step=step)
            if step % 100 == 0:
                events.metric("validation/loss", loss + 0.08, step=step, unit="nats/token")


def metrics(loss: float, bits: float, perplexity: float) -> dict:
    return {
        "loss": {"value": loss, "unit": "nats/token"},
        "bits_per_byte": {"value": bits, "unit": "bits/byte"},
        "perplexity": {"value": perplexity, "unit": ""},
    }


def evaluation() -> dict:
    extent = {"documents": 84, "text_bytes": 1_304_466}
    baselines = [
        extent | {"name": name, "bits_per_byte": bits, "train_bytes": 0, "seconds": 1.0}
        for name, bits in (
            ("gzip -9", 1.783),
            ("xz -6", 1.721),
            ("3-gram", 2.402),
            ("5-gram", 1.839),
            ("8-gram", 1.645),
        )
    ]
    split = {
        "metrics": metrics(2.51, 1.713, 12.305),
        "unit": "token",
        "count": 441_222,
        "seconds": 12.5,
        "record": extent,
        "baselines": baselines,
        "details": {
            "by_context": CURVE
            | {"rows": [{"from_tokens": 2**n, "tokens": 900, "loss": 5.8 * 0.9**n} for n in range(9)]},
            "by_document_size": [
                {"from_bytes": 0, "to_bytes": 1024, "documents": 9, "text_bytes": 6000, "bits_per_byte": 2.31},
                {"from_bytes": 1024, "to_bytes": 65536, "documents": 70, "text_bytes": 900_000, "bits_per_byte": 1.74},
                {"from_bytes": 65536, "to_bytes": None, "documents": 5, "text_bytes": 398_466, "bits_per_byte": 1.66},
            ],
        },
    }
    text = (
        '    """Return the sum of a and b."""\n    if a is None:\n        return b\n    return a + b\n\n\ndef main():\n'
    )
    return {
        "format": 2,
        "task": "next-token",
        "precision": "bf16",
        "sequence_tokens": 512,
        "document_masking": False,
        "splits": {"validation": split, "test": split | {"metrics": metrics(2.56, 1.737, 12.9)}},
        "completions": [
            {
                "prompt": "def add(a, b):\n",
                "text": text,
                "prompt_tokens": 7,
                "completion_tokens": 31,
                "finish": "length",
                "overlap": {"text": " is None:\n        return", "size_bytes": 24, "share": 24 / len(text)},
            }
        ],
        "overlap_searched_bytes": 28_849_080,
    }


def data_report() -> dict:
    total = {
        "read": {"documents": 1790, "bytes": 31_525_224},
        "broken": {"not UTF-8": {"documents": 3, "bytes": 4112}},
        "dropped": {"too short": {"documents": 31, "bytes": 0}},
        "duplicates": {"documents": 18, "bytes": 61_220},
        "kept": {"documents": 1738, "bytes": 31_459_892},
    }
    share = {"documents": 869, "bytes": 15_000_000, "tokens": 5_012_345, "bytes_per_token": 2.9926}
    return {
        "format": 1,
        "sources": [{"source": "python-stdlib", **total, "examples": {"not UTF-8": ["lib2to3/tests/data/bom.py"]}}],
        "total": total,
        "splits": {"train": share | {"tokens": 9_512_345}, "validation": share, "test": share},
        "tokenizer": {
            "kind": "byte-bpe",
            "vocabulary": 4096,
            "asked_vocabulary": 4096,
            "end_of_text": {"text": "<|endoftext|>", "id": 0},
            "bytes_per_token": 2.99,
            "lossy_documents": 0,
        },
    }


def audit() -> dict:
    run, step = partial(AuditRow, group="run"), partial(AuditRow, group="step")
    rows = (
        run(quantity="training time", unit="s", predicted=231.2, measured=239.6, ratio=1.036, within=True),
        run(quantity="peak memory", unit="bytes", predicted=607 * MIB, measured=616 * MIB, ratio=1.015),
        run(quantity="tokens per second", unit="tokens/s", predicted=18_800, measured=18_420, ratio=0.98),
        run(quantity="MFU", unit="", predicted=0.44, measured=0.42, ratio=0.955),
        step(quantity="update", unit="s", predicted=0.019, measured=0.0175, ratio=0.92, within=False),
        step(quantity="data_wait", unit="s", predicted=0.0001, measured=0.0004, ratio=None),
    )
    return to_json(Audit(rows=rows, seconds_ratio=1.036, memory_ratio=1.021))


def answer() -> dict:
    return {
        "health": {},
        "models": {},
        "request": {"method": "POST", "path": "/v1/completions", "body": {"prompt": "def add(a, b):\n"}},
        "response": {"choices": [{"index": 0, "text": "    return a + b\n", "finish_reason": "stop"}]},
        "prompt": "def add(a, b):\n",
        "answer": "    return a + b\n",
        "seconds": 0.31,
        "tokens_per_s": 25.8,
        "time_to_first_token_s": 0.021,
    }


def write_run(root: Path, recipe: Recipe, *, without: tuple[str, ...] = (), replace: dict | None = None) -> RunRecord:
    """Every artefact but those of ``without``; ``replace`` exchanges a stage's JSON."""
    workspace = Workspace(root)
    contents = {
        "doctor": ("machine.json", to_json(machine())),
        "plan": ("plan.json", to_json(plan(recipe))),
        "data": ("report.json", data_report()),
        "train": ("summary.json", summary()),
        "evaluate": ("evaluation.json", evaluation()),
        "audit": ("audit.json", audit()),
        "serve": ("answer.json", answer()),
    }
    artifacts = {}
    for number, (stage, (name, record)) in enumerate(contents.items()):
        if stage in without:
            continue
        draft = workspace.draft(stage, f"{number:x}" * 64)
        (draft / name).write_text(json.dumps((replace or {}).get(stage, record)), encoding="utf-8")
        if stage == "train":
            write_events(draft / "events.jsonl")
        manifest = Manifest(
            kind=KINDS[stage],
            stage=stage,
            stage_version=1,
            fingerprint=f"{number:x}" * 64,
            identity={},
            inputs={},
            files=(),
            summary={},
            execution={"seconds": 3.0 + 17 * number, "started_unix_s": 1_790_000_000 + 60 * number},
        )
        artifacts[stage] = workspace.commit(draft, manifest)
    return RunRecord(recipe=recipe, artifacts=artifacts)


@pytest.fixture
def recipe() -> Recipe:
    return make_recipe()


@pytest.fixture
def record(tmp_path, recipe) -> RunRecord:
    return write_run(tmp_path, recipe)


@pytest.fixture
def fake() -> SimpleNamespace:
    """The makers above, for tests that change something in them."""
    return SimpleNamespace(
        recipe=make_recipe, run=write_run, evaluation=evaluation, audit=audit, summary=summary, data=data_report
    )
