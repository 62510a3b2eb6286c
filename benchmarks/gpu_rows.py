"""What ``train_gpu.py`` measures: networks and batches, with the speeds that others reach."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from contestants import Case
from trainwright.core.errors import MachineError
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection


@dataclass(frozen=True, kw_only=True)
class Row:
    """A network and its batch, what others reach with it on an H200 (tokens/s), and what we want to."""

    name: str
    case: Case
    window: int
    bar: float | None = None
    goal: float | None = None
    train: dict[str, Any] = field(default_factory=dict)


def _row(name: str, model: dict[str, Any], *, vocabulary: int, sequences: int, steps: int, **options: Any) -> Row:
    section = ModelSection(**model)
    tokens = options.pop("tokens", section.context_tokens)
    case = Case(name=name, model=section, vocabulary=vocabulary, sequences=sequences, tokens=tokens, steps=steps)
    return Row(name=name, case=case, **options)


_GPT2 = {"family": "gpt2", "context_tokens": 1024}
_LLAMA3 = {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "ffn_width": 14336, "context_tokens": 8192}
ROWS = (
    # Bars: nanoGPT's line in torch 2.11 on an H200; a third more is the goal.
    _row(
        "gpt2-124M",
        _GPT2 | {"layers": 12, "width": 768, "heads": 12},
        vocabulary=50304,
        sequences=128,
        steps=30,
        window=5,
        bar=475e3,
        goal=520e3,
    ),
    _row(
        "gpt2-1.5B",
        _GPT2 | {"layers": 48, "width": 1600, "heads": 25},
        vocabulary=50304,
        sequences=64,
        steps=12,
        window=2,
        bar=50e3,
        goal=56e3,
    ),
    # Moments in bf16: with fp32 ones the states alone are 128 GB.
    _row(
        "llama3-8B",
        _LLAMA3,
        vocabulary=128256,
        sequences=1,
        steps=12,
        window=2,
        bar=7.7e3,
        train={"recompute": "full", "optimizer": {"moments": "bf16"}},
    ),
)
SMOKE = (
    _row(
        "tiny-gpt2",
        {"family": "gpt2", "layers": 1, "width": 32, "heads": 2, "context_tokens": 32},
        vocabulary=300,
        sequences=4,
        steps=8,
        window=2,
        bar=1.0,
    ),
)


def recipe_of(row: Row, *, compiled: bool) -> Recipe:
    """Returns the row as a recipe; what it does not say the planner chooses."""
    case, more = row.case, dict(row.train)
    optimizer = {"name": "adamw", "lr": 1e-4, "weight_decay": 0.0} | more.pop("optimizer", {})
    train = {
        "sequence_tokens": case.tokens,
        "batch_tokens": case.sequences * case.tokens,
        "duration": f"{case.steps} steps",
        "validation": {"every_steps": 10**9},
        "schedule": {"name": "constant", "warmup": "0 steps"},
        "optimizer": optimizer,
        "exec": {
            "compile": compiled,
            "checkpoint_every": 0,
            "log_every_steps": row.window,
            "tensorboard": False,
            "layout": {},
        },
    }
    return Recipe.model_validate(
        {
            "name": "bench",
            "model": case.model.model_dump(),
            "data": {"sources": [{"kind": "python-stdlib"}]},
            "train": train | more,
        }
    )


def windows_speed(row: Row, stamps: list[float]) -> float:
    """Returns tokens/s: the median over windows of steps, without what the first two report."""
    seconds = [after - before for before, after in pairwise(stamps)][1:]
    if not seconds:
        raise MachineError("too few steps were made to tell the speed", seen=f"{len(stamps)} windows")
    return row.window * row.case.sequences * row.case.tokens / statistics.median(seconds)
