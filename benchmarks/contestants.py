"""Who is compared in ``train_cpu.py``: our trainer, a bare loop, Hugging Face's Trainer and litgpt.

Each contestant trains a few steps on the same batches and returns a ``Run``: for each step but the first, seconds by
the clock and by the processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
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
from trainwright.runtime.device import DTYPES, compiler
from trainwright.spec.event import Event
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train import run as train_stage
from trainwright.testing.artifacts import make_plan, manifest_of

PEERS = Path(__file__).resolve().parent.parent / "build" / "peers" / "bin" / "python"
"""An environment of its own for what would change ours (`make peers`)."""


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
        sequences=16,
        tokens=256,
        steps=8,
        model=ModelSection(layers=8, width=256, heads=4, ffn_width=768, context_tokens=256, tied=True),
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
SMOKE = Case(
    name="smoke",
    vocabulary=300,
    sequences=4,
    tokens=32,
    steps=4,
    model=ModelSection(layers=1, width=32, heads=2, ffn_width=64, context_tokens=32, tied=True),
)
LR = 1e-4


@dataclass(frozen=True, kw_only=True)
class Run:
    """Seconds of each step but the first, by the clock and of all processors that the process used."""

    wall_s: list[float]
    cpu_s: list[float]


class Stamps:
    """Moments at which steps end."""

    def __init__(self) -> None:
        self._at: list[tuple[float, float]] = []

    def __call__(self) -> None:
        """Notes that a step has ended."""
        self._at.append((time.perf_counter(), time.process_time()))

    def run(self) -> Run:
        """Returns the seconds between them."""
        pairs = list(pairwise(self._at))
        return Run(
            wall_s=[after[0] - before[0] for before, after in pairs],
            cpu_s=[after[1] - before[1] for before, after in pairs],
        )


class Bench:
    """One case, its data and its contestants, eager or compiled."""

    def __init__(self, case: Case, root: Path, *, precision: str, compiled: bool, threads: int) -> None:
        self.case, self.root, self.precision, self.compiled, self.threads = case, root, precision, compiled, threads
        self.mode = "compiled" if compiled else "eager"
        self.data = random_dataset(root / f"{case.name}-{self.mode}", case)
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

    def ours(self) -> Run:
        """Trains with ``stages.train`` in this process."""
        return self._trained(
            ParallelPlan(micro_batch_sequences=self.case.sequences, threads=self.threads, compile=self.compiled)
        )

    def sharded(self) -> Run:
        """Trains with ``stages.train`` in two processes of half the threads, which share weights (ZeRO-3)."""
        return self._trained(
            ParallelPlan(
                dp_shard=2,
                micro_batch_sequences=max(1, self.case.sequences // 2),
                threads=max(1, self.threads // 2),
                compile=self.compiled,
            )
        )

    def _trained(self, parallel: ParallelPlan) -> Run:
        self._round += 1
        stamps = Stamps()

        def listen(event: Event) -> None:
            if event.kind == "progress" and event.name == "train":
                stamps()

        out = self.root / f"{self.case.name}-{self.mode}-{self._round}"
        out.mkdir()
        plan = make_plan(
            out / "plan",
            self.recipe,
            vocabulary=self.case.vocabulary,
            steps=self.case.steps,
            precision=self.precision,  # type: ignore[arg-type]
            parallel=parallel,
        )
        inputs = {"dataset": self.data, "plan": plan}
        with Events(None, run="bench", listeners=(listen,)) as events:
            train_stage(Context(recipe=self.recipe, inputs=inputs, out=out, events=events, root=self.root))
        return stamps.run()

    def bare(self) -> Run:
        """Trains in a loop without any framework."""
        torch.manual_seed(0)
        model = build_network(self.case.spec, dtype=DTYPES[self.precision])
        model.initialise(0)
        network: Callable[..., torch.Tensor] = torch.compile(model, backend=compiler("cpu")) if self.compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)
        split = TokenDataset.open(self.data.path).splits["train"]
        windows = Windows(split, sequence_tokens=self.case.tokens, batch_sequences=self.case.sequences, seed=0)
        stamps = Stamps()
        for step in range(self.case.steps):
            tokens = windows.batch(step)["tokens"]
            hidden = network(tokens[:, :-1])
            loss, count = linear_cross_entropy(hidden.flatten(0, 1), model.head_weight, tokens[:, 1:].flatten())
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            stamps()
        return stamps.run()

    def hugging_face(self) -> Run:
        """Trains the same shape with transformers' Trainer, with its defaults."""
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
        stamps = Stamps()

        class Stamp(transformers.TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                stamps()

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
        return stamps.run()

    def litgpt(self) -> Run:
        """Trains the same shape with litgpt's model, loss and Fabric, in the peers' environment."""
        spec = self.case.spec
        question = {
            "gated": spec.gated,
            "layers": spec.layers,
            "width": spec.width,
            "heads": spec.heads,
            "ffn_width": spec.ffn_width,
            "vocabulary": spec.vocabulary,
            "tied": spec.tied,
            "sequences": self.case.sequences,
            "tokens": self.case.tokens,
            "steps": self.case.steps,
            "threads": self.threads,
            "compiled": self.compiled,
            "precision": self.precision,
        }
        script = Path(__file__).with_name("litgpt_peer.py")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(PEERS), str(script), json.dumps(question)], capture_output=True, text=True, check=True, env=environment
        )
        return Run(**json.loads(done.stdout.splitlines()[-1]))


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
