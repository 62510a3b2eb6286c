"""How long the planner computes, and in how much memory: ``plan`` and ``recommend`` as commands, and its growth.

    python benchmarks/planner.py [--rounds 5] [--write]

Each command runs in a process of its own, interpreter and imports included: the median of the processor's seconds,
which other programs lengthen less than those on the wall, of its rounds after one that Python compiles its sources in,
and its peak of resident memory. The bars: 0.3 s for ``plan``, whether the run fits or not, 3 s for ``recommend`` over
the whole catalogue up to 16,384 devices, 300 MB for both. Growth is measured inside one process: layouts compared on
one device, and the seconds that takes, for ever larger clusters. Exit code 1: a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import DEFAULT, stack
from trainwright.hardware.machine.facts import gather
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.search.layouts import compare
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec

RESULTS = Path(__file__).parent / "results"
MODEL, TOKENS, DEVICE, MOST_DEVICES = "llama3.1-405b", "15T", "h100-sxm", 16_384
MEMORY_BYTES = 300e6
PLAN_S, RECOMMEND_S = 0.3, 3.0
COMMANDS = (
    ("plan", ("plan", "--model", MODEL, "--tokens", TOKENS, "--on", f"{MOST_DEVICES // 8}x8x{DEVICE}"), PLAN_S),
    ("plan, does not fit", ("plan", "--model", "llama3.1-8b", "--on", "rtx-4090"), PLAN_S),
    ("plan, tuning", ("plan", "--model", "llama3.1-8b", "--on", "rtx-4090", "--method", "lora"), PLAN_S),
    ("recommend", ("recommend", "--model", MODEL, "--tokens", TOKENS), RECOMMEND_S),
    ("recommend, deadline", ("recommend", "--model", MODEL, "--tokens", TOKENS, "--deadline", "120d"), RECOMMEND_S),
    ("recommend, 8B", ("recommend", "--model", "llama3.1-8b", "--tokens", TOKENS), RECOMMEND_S),
    ("recommend, 8B, defaults", ("recommend", "--model", "llama3.1-8b"), RECOMMEND_S),
    ("recommend, mixture", ("recommend", "--model", "deepseek-v3", "--tokens", TOKENS), RECOMMEND_S),
    ("recommend, tuning", ("recommend", "--model", "llama3.1-8b", "--method", "qlora"), RECOMMEND_S),
    ("recommend, images", ("recommend", "--model", "vit-b-16"), RECOMMEND_S),
)


def command(arguments: Sequence[str]) -> tuple[float, int]:
    """The processor's seconds of one run of the command line, and its peak of resident bytes."""
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "trainwright", *arguments],
        compiled,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: what was asked about does not fit
        sys.exit(f"trainwright {' '.join(arguments)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def growth(rounds: int) -> list[dict[str, float]]:
    """Layouts and seconds of one device's search, by the largest cluster."""
    shape = model(MODEL)
    assert isinstance(shape, ModelSpec)
    workload = scenario_of(Question(model=shape, on=DEVICE, tokens=10**13)).run.workload
    rows = []
    for power in range(6, 19, 2):
        most = 1 << power
        machines = cluster(f"{most // 8}x8x{DEVICE}")
        counts = [1 << each for each in range(power + 1)]
        times = []
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            found = compare(
                RunSpec(model=shape, workload=workload, cluster=machines, stack=stack(DEFAULT)), counts, thorough=False
            )
            times.append(time.perf_counter() - begin)
        rows.append(
            {
                "devices": most,
                "layouts": len(found.layouts),
                "fit": int(found.fits.sum()),
                "seconds": statistics.median(times[1:]),
            }
        )
    return rows


def main() -> int:
    """Measure, print, and keep the numbers where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the numbers under benchmarks/results")
    args = parser.parse_args()
    measured: list[dict[str, Any]] = []
    print(f"{'command':24} {'median':>8} {'slowest':>8} {'bar':>6}  {'memory':>8} {'bar':>6}")
    for name, arguments, bar_s in COMMANDS:
        runs = [command(arguments) for _ in range(args.rounds + 1)][1:]
        seconds, memory = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
        slowest = max(run[0] for run in runs)
        kept = seconds <= bar_s and memory <= MEMORY_BYTES
        measured.append(
            {
                "command": name,
                "arguments": arguments,
                "seconds": [run[0] for run in runs],
                "bar_s": bar_s,
                "memory_bytes": memory,
                "bar_bytes": MEMORY_BYTES,
                "kept": kept,
            }
        )
        sizes = f"{memory / 1e6:6.0f}MB {MEMORY_BYTES / 1e6:4.0f}MB"
        print(f"{name:24} {seconds:7.2f}s {slowest:7.2f}s {bar_s:5.1f}s  {sizes}{'' if kept else '  missed'}")
    rows = growth(args.rounds)
    print(f"\n{'devices up to':>14} {'layouts':>9} {'that fit':>9} {'ms':>7}")
    for row in rows:
        print(f"{row['devices']:14,} {row['layouts']:9,} {row['fit']:9,} {row['seconds'] * 1e3:7.1f}")
    if args.write:
        today = datetime.now(tz=UTC).date().isoformat()
        facts = gather(Path.cwd(), watch_s=0.0)
        result = {
            "date": today,
            "machine": f"{facts.cpu}, {facts.logical_cores} logical cores",
            "python": platform.python_version(),
            "commands": measured,
            "growth": rows,
        }
        path = RESULTS / f"planner-{today}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"\nwritten: {path.relative_to(Path.cwd())}" if path.is_relative_to(Path.cwd()) else f"\nwritten: {path}")
    return 0 if all(row["kept"] for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
