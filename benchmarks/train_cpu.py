"""Training speed on a CPU beside a bare torch loop and Hugging Face's Trainer, in turn, in one process.

    python benchmarks/train_cpu.py                     # 10M and GPT-2 124M, eager
    python benchmarks/train_cpu.py --compile           # all three through torch.compile
    python benchmarks/train_cpu.py --allocator default # without the kept heap

The three take turns, round by round, on the same batches with the same optimizer, so that a machine whose speed drifts
slows all of them; what counts are the ratios within a round. The bare loop is what a careful person writes by hand over
the same network and loss: read a batch, forward, backward, clip, AdamW. Bars: overhead over the bare loop at most 2 %,
and at least as fast as Hugging Face's Trainer.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainwright.artifact.events import Events
from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.artifact.store import Artifact
from trainwright.artifact.workspace import Workspace
from trainwright.model.build import build_network
from trainwright.model.losses import linear_cross_entropy
from trainwright.model.tasks.windows import Windows
from trainwright.planner.counts.flops import training_flops_per_token
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime import execution
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import DTYPES
from trainwright.spec.event import Event
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train import run as train_stage
from trainwright.testing.artifacts import make_plan, manifest_of


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network and its batch: ``sequences`` of ``tokens``."""

    name: str
    model: ModelSection
    vocabulary: int
    sequences: int
    tokens: int
    steps: int

    @property
    def spec(self) -> ModelSpec:
        """The shape with its vocabulary."""
        return self.model.spec(vocabulary=self.vocabulary)


CASES = {
    "10M": Case(
        name="10M",
        vocabulary=8192,
        sequences=8,
        tokens=512,
        steps=8,
        model=ModelSection(layers=8, width=256, heads=4, ffn_width=768, context_tokens=512, tied=True),
    ),
    "gpt2-124M": Case(
        name="gpt2-124M",
        vocabulary=50257,
        sequences=2,
        tokens=512,
        steps=4,
        model=ModelSection(family="gpt2", layers=12, width=768, heads=12, context_tokens=1024),
    ),
}
LR = 1e-4


class Bench:
    """One case, its data and its three contestants."""

    def __init__(self, case: Case, root: Path, *, precision: str, compiled: bool, threads: int) -> None:
        self.case, self.root, self.precision, self.compiled, self.threads = case, root, precision, compiled, threads
        self.data = random_dataset(root / case.name, case)
        self.recipe = Recipe.model_validate(
            {
                "name": "bench",
                "model": case.model.model_dump(),
                "data": {"sources": [{"kind": "python-stdlib"}]},
                "train": {
                    "sequence_tokens": case.tokens,
                    "batch_tokens": case.sequences * case.tokens,
                    "duration": f"{case.steps} steps",
                    "precision": precision,
                    "validation": {"every_steps": 10**9},
                    "schedule": {"name": "constant", "warmup": "0 steps"},
                    "optimizer": {"name": "adamw", "lr": LR, "weight_decay": 0.0},
                    "exec": {
                        "micro_batch": case.sequences,
                        "compile": compiled,
                        "threads": threads,
                        "checkpoint_every": 0,
                        "log_every_steps": 10,
                    },
                },
            }
        )
        self._round = 0

    def ours(self) -> list[float]:
        """Seconds of each step of ``stages.train``, from its progress events."""
        self._round += 1
        stamps: list[float] = []

        def listen(event: Event) -> None:
            if event.kind == "progress":
                stamps.append(time.perf_counter())

        out = self.root / f"{self.case.name}-{self._round}"
        out.mkdir()
        plan = make_plan(
            out / "plan",
            self.recipe,
            vocabulary=self.case.vocabulary,
            steps=self.case.steps,
            precision=self.precision,  # type: ignore[arg-type]
            parallel=ParallelPlan(
                micro_batch_sequences=self.case.sequences, threads=self.threads, compile=self.compiled
            ),
        )
        inputs = {"dataset": self.data, "plan": plan}
        with Events(None, run="bench", listeners=(listen,)) as events:
            train_stage(Context(recipe=self.recipe, inputs=inputs, out=out, events=events, root=self.root))
        return np.diff(stamps).tolist()

    def bare(self) -> list[float]:
        """Seconds of each step of a loop without any framework."""
        torch.manual_seed(0)
        model = build_network(self.case.spec, dtype=DTYPES[self.precision])
        model.initialise(0)
        network: Callable[..., torch.Tensor] = torch.compile(model) if self.compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)
        split = TokenDataset.open(self.data.path).splits["train"]
        windows = Windows(split, sequence_tokens=self.case.tokens, batch_sequences=self.case.sequences, seed=0)
        stamps = []
        for step in range(self.case.steps):
            tokens = windows.batch(step)["tokens"]
            hidden = network(tokens[:, :-1])
            loss, count = linear_cross_entropy(hidden.flatten(0, 1), model.head_weight, tokens[:, 1:].flatten())
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            stamps.append(time.perf_counter())
        return np.diff(stamps).tolist()

    def hugging_face(self) -> list[float]:
        """Seconds of each step of transformers' Trainer on the same shape."""
        import transformers

        config = huggingface_config(self.case.spec, where="bench")
        config |= {"bos_token_id": 0, "eos_token_id": 0}
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config.pop("model_type"), **config)
        )
        split = TokenDataset.open(self.data.path).splits["train"]
        windows = Windows(split, sequence_tokens=self.case.tokens, batch_sequences=self.case.sequences, seed=0)
        rows = [
            {"input_ids": row[:-1], "labels": row[:-1]}
            for step in range(self.case.steps)
            for row in windows.batch(step)["tokens"]
        ]
        stamps: list[float] = []

        class Stamp(transformers.TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                stamps.append(time.perf_counter())

        arguments = transformers.TrainingArguments(
            output_dir=str(self.root / "hf"),
            per_device_train_batch_size=self.case.sequences,
            max_steps=self.case.steps,
            learning_rate=LR,
            weight_decay=0.0,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            use_cpu=True,
            bf16=self.precision == "bf16",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            torch_compile=self.compiled,
            dataloader_num_workers=0,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Stamp()]).train()
        return np.diff(stamps).tolist()


def random_dataset(root: Path, case: Case) -> Artifact:
    """Random tokens: speed does not depend on what they say."""
    workspace = Workspace(root)
    partial = workspace.draft("data", "0" * 64)
    writer = SplitWriter(partial, "train", vocabulary=case.vocabulary, end_of_text_id=0)
    random = np.random.default_rng(0)
    count = case.sequences * case.tokens * (case.steps + 2)
    writer.append(random.integers(1, case.vocabulary, size=count), text_bytes=count)
    (partial / "tokenizer.json").write_text("{}")
    write_dataset(
        partial,
        vocabulary=case.vocabulary,
        end_of_text="<|endoftext|>",
        end_of_text_id=0,
        splits={"train": writer.close()},
    )
    return workspace.commit(partial, manifest_of("data"))


def matmul_peak(precision: str) -> float:
    """Best FLOP/s over a few products of training's own shapes, measured now."""
    best = 0.0
    for rows, inner, columns in ((2048, 256, 768), (4096, 256, 1024), (2048, 768, 3072), (2048, 2048, 2048)):
        a, b = (torch.randn(shape, dtype=DTYPES[precision]) for shape in ((rows, inner), (columns, inner)))
        times = []
        for _ in range(12):
            begin = time.perf_counter()
            torch.nn.functional.linear(a, b)
            times.append(time.perf_counter() - begin)
        best = max(best, 2 * rows * inner * columns / statistics.median(times[2:]))
    return best


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Rounds in turn; the first step of each run is left out (it warms up or compiles)."""
    contestants = {"ours": bench.ours, "bare": bench.bare, "hugging_face": bench.hugging_face}
    medians: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        order = list(contestants) if number % 2 else list(reversed(contestants))
        for name in order:
            seconds = statistics.median(contestants[name]())
            if number:  # the first round warms caches and compiles
                medians[name].append(seconds)
            print(f"  {bench.case.name} round {number} {name}: {seconds * 1e3:.1f} ms/step", file=sys.stderr)
    case, peak = bench.case, matmul_peak(bench.precision)
    tokens = case.sequences * case.tokens
    flops = training_flops_per_token(case.spec, sequence_tokens=case.tokens) * tokens
    ratios = {
        name: statistics.median(mine / other for mine, other in zip(medians["ours"], medians[name], strict=True))
        for name in ("bare", "hugging_face")
    }
    return {
        "case": case.name,
        "parameters": total_parameters(case.spec),
        "precision": bench.precision,
        "compiled": bench.compiled,
        "tokens_per_step": tokens,
        "matmul_peak_gflops": peak / 1e9,
        "tokens_per_s": {name: tokens / statistics.median(times) for name, times in medians.items()},
        "share_of_matmul_peak": {name: flops / statistics.median(times) / peak for name, times in medians.items()},
        "overhead_over_bare": ratios["bare"] - 1,
        "time_relative_to_hugging_face": ratios["hugging_face"],
        "seconds_per_step": medians,
    }


def main() -> int:
    """Run the cases and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--allocator", choices=["kept", "default"], default="kept")
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.allocator == "kept":
        keep_freed_memory()
    else:
        vars(execution)["keep_freed_memory"] = lambda: False
    results = []
    with tempfile.TemporaryDirectory() as root:
        for name in args.cases:
            bench = Bench(
                CASES[name], Path(root), precision=args.precision, compiled=args.compile, threads=args.threads
            )
            results.append(measure(bench, args.rounds))
    document = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "machine": platform.machine(),
        "threads": args.threads,
        "allocator": args.allocator,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
        "results": results,
    }
    if args.output:
        args.output.write_text(json.dumps(document, indent=1) + "\n")
    for row in results:
        speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in row["tokens_per_s"].items())
        print(f"{row['case']}: tokens/s {speeds}; {row['share_of_matmul_peak']['ours']:.1%} of the matmul peak")
        print(f"  overhead over the bare loop {row['overhead_over_bare']:+.1%} (bar: at most +2 %)")
        print(f"  time relative to Hugging Face Trainer {row['time_relative_to_hugging_face']:.2f} (bar: at most 1)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
