"""Training speed and memory on an accelerator: predicted beside measured, Hugging Face's Trainer beside ours.

    python benchmarks/train_gpu.py                # all rows that fit, at most five minutes; writes benchmarks/results
    python benchmarks/train_gpu.py --cpu-smoke    # tiny rows on the processor: every line of this file, no figures

The doctor measures the device, the planner predicts each row, and the trainer executes the plan as it stands. Every
contestant of every row has a process of its own, so that memory counts from nothing and one that fails ends alone; rows
that the time does not suffice for say so. Speed is the median over windows of steps, each ended by a read of the loss;
the first windows, which compile, are left out. Needs torch and what `make wheelhouse` gathers; no network.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from contestants import random_dataset
from gpu_rows import ROWS, SMOKE, Row, recipe_of, windows_speed
from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.core.errors import TrainwrightError
from trainwright.core.records import from_json, to_json
from trainwright.hardware.machine.record import Machine, machine_text, read_machine
from trainwright.model.tasks.windows import Windows
from trainwright.planner.counts.flops import training_flops_per_token, utilisation
from trainwright.runtime.device import choose
from trainwright.spec.event import Event
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.plan import Plan
from trainwright.spec.summary import TrainSummary
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.doctor.stage import examine
from trainwright.stages.plan.build import build_plan
from trainwright.stages.train import run as train_stage
from trainwright.testing.artifacts import make_artifact

RESULTS = Path(__file__).resolve().parent / "results"
NO_DEVICE = 3
"""Exit code where there is no accelerator, as the command line's for a machine that lacks something."""
LEAST_S = 25.0
"""A contestant with less time than this is not started: compiling alone takes as long."""


def ours(row: Row, machine: Machine, root: Path, *, compiled: bool) -> dict[str, Any]:
    """Plans the row, trains it as planned, and holds one against the other."""
    recipe, case = recipe_of(row, compiled=compiled), row.case
    tokens = case.sequences * case.tokens * (case.steps + 2)
    plan = build_plan(recipe, machine, DatasetFacts(vocabulary=case.vocabulary, train_tokens=tokens, counted=True))
    predicted = plan.estimate
    if not predicted.fits:
        need, room = predicted.memory.total_bytes / 1e9, predicted.memory_available_bytes / 1e9
        return {"refused": f"the plan says that it needs {need:.0f} GB of {room:.0f} GB"}
    planned = make_artifact(root / "plan", "plan", {"plan.json": json.dumps(to_json(plan)).encode()})
    stamps: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "metric" and event.name == "train/loss":
            stamps.append(time.perf_counter())

    out = root / "out"
    out.mkdir()
    inputs = {"dataset": random_dataset(root, case), "plan": planned}
    with Events(None, run="bench", listeners=(listen,)) as events:
        train_stage(Context(recipe=recipe, inputs=inputs, out=out, events=events, root=root))
    path = out / "summary.json"
    summary = from_json(TrainSummary, json.loads(path.read_text()), where=str(path))
    return _held_against(row, plan, summary, windows_speed(row, stamps))


def _held_against(row: Row, plan: Plan, summary: TrainSummary, tokens_per_s: float) -> dict[str, Any]:
    case, predicted = row.case, plan.estimate
    step_s = case.sequences * case.tokens / tokens_per_s
    flops_per_token = training_flops_per_token(case.spec, sequence_tokens=case.tokens)
    peak = plan.cluster.device.flops_per_s.get(plan.workload.precision)
    memory = summary.memory.total_bytes - summary.memory.reserved_unused
    planned_bytes = predicted.memory.total_bytes - predicted.memory.reserved_unused
    return {
        "tokens_per_s": tokens_per_s,
        "mfu": utilisation(tokens_per_s * flops_per_token, peak),
        "precision": plan.workload.precision,
        "micro_batch": plan.parallel.micro_batch_sequences,
        "compiled": plan.parallel.compile,
        "step_s": step_s,
        "predicted_step_s": predicted.phases.total_s,
        "time_error": predicted.phases.total_s / step_s - 1,
        "memory_bytes": memory,
        "predicted_memory_bytes": planned_bytes,
        "memory_error": planned_bytes / memory - 1,
        "phases": to_json(summary.step_phases),
        "memory": to_json(summary.memory),
    }


def hugging_face(row: Row, micro_batch: int, root: Path, *, compiled: bool, kind: str) -> dict[str, Any]:
    """Speed and peak memory of transformers' Trainer on the same shape, batch and micro batch."""
    import transformers

    case = row.case
    config = huggingface_config(case.spec, where="bench") | {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    )
    split = TokenDataset.open(random_dataset(root, case).path).splits["train"]
    windows = Windows(split, sequence_tokens=case.tokens, batch_sequences=case.sequences, seed=0)
    rows = [
        {"input_ids": row[:-1], "labels": row[:-1]}
        for step in range(case.steps)
        for row in windows.batch(step)["tokens"]
    ]
    stamps: list[float] = []
    device = choose(kind)

    class Stamp(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % row.window == 0:
                if device.kind != "cpu":
                    torch.accelerator.synchronize()
                stamps.append(time.perf_counter())

    arguments = transformers.TrainingArguments(
        output_dir=str(root / "hf"),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=case.sequences // micro_batch,
        max_steps=case.steps,
        learning_rate=1e-4,
        weight_decay=0.0,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        use_cpu=device.kind == "cpu",
        bf16=device.native_bf16,
        gradient_checkpointing=row.train.get("recompute") == "full",
        torch_compile=compiled,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Stamp()]).train()
    peak = None if device.kind == "cpu" else torch.accelerator.max_memory_allocated()
    return {"tokens_per_s": windows_speed(row, stamps), "memory_bytes": peak, "micro_batch": micro_batch}


def child(arguments: argparse.Namespace) -> None:
    """Measures one contestant of one row in this process; writes what came of it as JSON."""
    row = next(each for each in (*ROWS, *SMOKE) if each.name == arguments.row)
    with tempfile.TemporaryDirectory() as folder:
        try:
            if arguments.contestant == "ours":
                machine = read_machine(arguments.machine)
                result = ours(row, machine, Path(folder), compiled=arguments.compile)
            else:
                micro, kind = arguments.micro_batch, arguments.device
                result = hugging_face(row, micro, Path(folder), compiled=arguments.compile, kind=kind)
        except torch.OutOfMemoryError as error:
            result = {"failed": f"out of memory: {str(error).splitlines()[0]}"}
        except TrainwrightError as error:
            result = {"failed": str(error)}
    arguments.result.write_text(json.dumps(result))


class Session:
    """All rows on one device, within a time."""

    def __init__(self, root: Path, kind: str, *, seconds: float, compiled: bool) -> None:
        self.root, self.kind, self.compiled = root, kind, compiled
        self.until = time.monotonic() + seconds
        self.machine = root / "machine.json"
        with Events(None, run="bench") as events:
            self.machine.write_bytes(machine_text(examine(root, events, fallback=root)))

    def contest(self, row: Row, contestant: str, *, micro_batch: int = 1) -> dict[str, Any]:
        """Returns what one contestant reached, or why it did not."""
        left = self.until - time.monotonic()
        if left < LEAST_S:
            return {"failed": "no time left"}
        result = self.root / f"{row.name}-{contestant}.json"
        command = [sys.executable, __file__, "--row", row.name, "--contestant", contestant]
        command += ["--machine", str(self.machine), "--result", str(result), "--device", self.kind]
        command += ["--micro-batch", str(micro_batch), *(["--compile"] if self.compiled else [])]
        try:
            done = subprocess.run(command, timeout=left, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {left:.0f} s"}
        if not result.is_file():
            last = done.stderr.strip().splitlines()
            return {"failed": last[-1] if last else f"exit code {done.returncode}"}
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def measure(self, row: Row) -> dict[str, Any]:
        """Returns a row: ours, then Hugging Face's Trainer with our micro batch, where it is installed."""
        mine = self.contest(row, "ours")
        print(f"{row.name}: ours {_brief(mine)}", file=sys.stderr, flush=True)
        theirs: dict[str, Any] = {"failed": "transformers is not installed"}
        if find_spec("transformers") is not None and find_spec("accelerate") is not None:
            theirs = self.contest(row, "hugging_face", micro_batch=mine.get("micro_batch", 1))
        print(f"{row.name}: Hugging Face Trainer {_brief(theirs)}", file=sys.stderr, flush=True)
        return {"row": row.name, "bar": row.bar, "goal": row.goal, "ours": mine, "hugging_face": theirs}


def _brief(result: dict[str, Any]) -> str:
    return f"{result['tokens_per_s']:,.0f} tokens/s" if "tokens_per_s" in result else str(result)


def table(document: dict[str, Any]) -> str:
    """Returns the rows as a Markdown table."""
    head = ("row", "tokens/s", "bar", "MFU", "Hugging Face", "ratio", "GB", "predicted", "step", "predicted")
    lines = [f"# Training on {document['device']['name']}, {document['date']}", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for each in document["rows"]:
        mine, theirs, bar = each["ours"], each["hugging_face"], each["bar"]
        cells = [each["row"], _number(mine.get("tokens_per_s")), _number(bar), _share(mine.get("mfu"))]
        cells.append(_number(theirs.get("tokens_per_s")))
        both = "tokens_per_s" in mine and "tokens_per_s" in theirs
        cells.append(f"{mine['tokens_per_s'] / theirs['tokens_per_s']:.2f}" if both else "-")
        if "tokens_per_s" in mine:
            cells += [f"{mine['memory_bytes'] / 1e9:.1f}", f"{mine['predicted_memory_bytes'] / 1e9:.1f}"]
            cells[-1] += f" ({mine['memory_error']:+.0%})"
            cells += [f"{mine['step_s'] * 1e3:.1f} ms", f"{mine['predicted_step_s'] * 1e3:.1f} ms"]
            cells[-1] += f" ({mine['time_error']:+.0%})"
        else:
            cells += [str(mine.get("refused") or mine.get("failed")), "-", "-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-smoke", action="store_true", help="tiny rows on the processor: all code, no figures")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all rows together (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file; the table lies beside it (default: benchmarks/results)")
    inner = parser.add_argument_group("for the processes that it starts")
    inner.add_argument("--row")
    inner.add_argument("--contestant", choices=["ours", "hugging_face"])
    inner.add_argument("--machine", type=Path)
    inner.add_argument("--result", type=Path)
    inner.add_argument("--device", default="auto")
    inner.add_argument("--micro-batch", type=int, default=1)
    inner.add_argument("--compile", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Measure all rows, print the table, write it down."""
    arguments = _arguments()
    if arguments.row:
        child(arguments)
        return 0
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    device = choose("cpu" if arguments.cpu_smoke else "auto")
    if device.kind == "cpu" and not arguments.cpu_smoke:
        print(f"train_gpu: torch {torch.__version__} sees no accelerator; nothing was measured", file=sys.stderr)
        return NO_DEVICE
    rows = SMOKE if arguments.cpu_smoke else ROWS
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), device.kind, seconds=60 * arguments.minutes, compiled=not arguments.cpu_smoke)
        measured = [session.measure(row) for row in rows]
    date = datetime.now(tz=UTC).date().isoformat()
    document = {
        "date": date,
        "device": {"kind": device.kind, "name": device.name, "memory_bytes": device.memory_bytes},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - started, 1),
        "rows": measured,
    }
    print(table(document))
    output = arguments.output or (None if arguments.cpu_smoke else RESULTS / f"train_gpu-{date}.json")
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n")
        output.with_suffix(".md").write_text(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
