"""Training speed on a CPU: ours, a bare loop, Hugging Face's Trainer, litgpt, and two processes, in turn.

    python benchmarks/train_cpu.py                     # the whole table: 10M and GPT-2 124M, eager and compiled
    python benchmarks/train_cpu.py --cases 10M --modes eager --rounds 5
    python benchmarks/train_cpu.py --smoke             # a tiny case: every line of this file, no figures
    python benchmarks/train_cpu.py --allocator default # without the kept heap

All take turns, round by round, on the same batches with the same optimizer, so that a machine whose speed drifts slows
all of them; what counts are ratios within a round, and their median. The bare loop is what a careful person writes by
hand over the same network and loss: read a batch, forward, backward, clip, AdamW. The overhead over it is told in
seconds of the processors, over as many interleaved pairs as ``--pairs`` says, with the upper bound of its one-sided
90 % interval (Student's t over logarithms of the pairs' ratios). litgpt takes part where `make peers` has made its
environment.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student

from contestants import CASES, PEERS, SMOKE, Bench, Case, Run
from trainwright.planner.counts.flops import training_flops_per_token
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime import execution
from trainwright.runtime.allocator import keep_freed_memory
from trainwright.runtime.device import DTYPES

MODES = ("eager", "compiled")
CONFIDENCE = 0.9
BARS = {
    "overhead": 0.01,
    "overhead_upper": 0.03,
    "hugging_face compiled": {"10M": 1.35, "gpt2-124M": 1.25},
    "hugging_face eager": {"10M": 1.15, "gpt2-124M": 1.15},
    "two processes": 0.9,
}
"""Issue 9's: overhead over the bare loop, and speeds relative to others' at least so."""

Contestant = Callable[[], Run]


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


def taking_turns(contestants: Mapping[str, Contestant], rounds: int, case: str) -> dict[str, list[Run]]:
    """Returns the runs of all contestants, round by round, each round in the other direction; a first one warms up."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        order = list(contestants)[:: 1 if number % 2 else -1]
        for name in order:
            run = contestants[name]()
            if number:
                runs[name].append(run)
            print(f"  {case} round {number} {name}: {_step_s(run) * 1e3:.1f} ms/step", file=sys.stderr, flush=True)
    return runs


def _step_s(run: Run) -> float:
    return statistics.median(run.wall_s)


def overhead(ours: list[Run], bare: list[Run]) -> dict[str, float]:
    """Returns the mean overhead over the bare loop in processor seconds, and the upper bound of its interval."""
    logs = [math.log(sum(mine.cpu_s) / sum(theirs.cpu_s)) for mine, theirs in zip(ours, bare, strict=True)]
    mean = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    upper = mean + float(student.ppf(CONFIDENCE, max(1, len(logs) - 1))) * error
    return {"mean": math.expm1(mean), "upper": math.expm1(min(upper, 700.0)), "pairs": len(logs)}


def speed_over(ours: list[Run], others: list[Run]) -> float:
    """Returns how many times as fast ours is: the median over rounds."""
    return statistics.median(_step_s(other) / _step_s(mine) for mine, other in zip(ours, others, strict=True))


def contestants_of(eager: Bench, compiled: Bench, modes: list[str]) -> dict[str, Contestant]:
    """Returns who takes turns on a case."""
    found: dict[str, Contestant] = {}
    for mode, bench in zip(MODES, (eager, compiled), strict=True):
        if mode in modes:
            found |= {f"ours {mode}": bench.ours, f"bare {mode}": bench.bare}
            found[f"hugging_face {mode}"] = bench.hugging_face
            if PEERS.is_file():
                found[f"litgpt {mode}"] = bench.litgpt
    if "eager" in modes:
        found["two processes"] = eager.sharded
    return found


def measure(case: Case, root: Path, *, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns a case's row: all contestants in turn, then ours and the bare loop in pairs."""
    threads, modes = arguments.threads, arguments.modes
    eager, compiled = (
        Bench(case, root, precision=arguments.precision, compiled=mode == "compiled", threads=threads) for mode in MODES
    )
    runs = taking_turns(contestants_of(eager, compiled, modes), arguments.rounds, case.name)
    first = eager if "eager" in modes else compiled
    pairs = taking_turns({"ours": first.ours, "bare": first.bare}, arguments.pairs, f"{case.name} pairs")
    tokens, peak = case.sequences * case.tokens, matmul_peak(arguments.precision)
    flops = training_flops_per_token(case.spec, sequence_tokens=case.tokens) * tokens
    steps_s = {name: statistics.median(map(_step_s, each)) for name, each in runs.items()}
    ratios: dict[str, float] = {}
    for mode in modes:
        others = [name for name in runs if name.endswith(mode) and not name.startswith("ours")]
        ratios |= {name: speed_over(runs[f"ours {mode}"], runs[name]) for name in others}
    if "two processes" in runs:
        ratios["two processes"] = speed_over(runs["two processes"], runs["ours eager"])
    return {
        "case": case.name,
        "parameters": total_parameters(case.spec),
        "precision": arguments.precision,
        "tokens_per_step": tokens,
        "matmul_peak_gflops": peak / 1e9,
        "tokens_per_s": {name: tokens / seconds for name, seconds in steps_s.items()},
        "share_of_matmul_peak": {name: flops / seconds / peak for name, seconds in steps_s.items()},
        "overhead_over_bare_cpu_s": overhead(pairs["ours"], pairs["bare"]),
        "speed_of_ours_over": ratios,
        "seconds_per_step": {name: [_step_s(run) for run in each] for name, each in runs.items()},
    }


def show(row: dict[str, Any]) -> None:
    """Prints a case: each contestant, and what the bars are about."""
    print(f"\n{row['case']}: {row['parameters'] / 1e6:.1f}M parameters, {row['tokens_per_step']} tokens a step")
    for name, speed in row["tokens_per_s"].items():
        share = row["share_of_matmul_peak"][name]
        print(f"  {name:<24} {speed:>10,.0f} tokens/s  {share:6.1%} of the matmul peak")
    spent = row["overhead_over_bare_cpu_s"]
    print(
        f"  overhead over the bare loop, processor seconds: {spent['mean']:+.2%}, at most {spent['upper']:+.2%} "
        f"(90 %, {spent['pairs']} pairs; bars {BARS['overhead']:+.0%} and {BARS['overhead_upper']:+.0%})"
    )
    for name, ratio in row["speed_of_ours_over"].items():
        bar = BARS.get(name, "")
        bar = bar.get(row["case"], "") if isinstance(bar, dict) else bar
        what = "two processes over one" if name == "two processes" else f"ours over {name}"
        print(f"  {what}: {ratio:.2f}" + (f" (bar: at least {bar})" if bar else ""))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--allocator", choices=["kept", "default"], default="kept")
    parser.add_argument("--smoke", action="store_true", help="a tiny case, two rounds, two pairs")
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    return parser.parse_args()


def main() -> int:
    """Run the cases and print what came of them."""
    arguments = _arguments()
    cases = [CASES[name] for name in arguments.cases]
    if arguments.smoke:
        cases, arguments.rounds, arguments.pairs = [SMOKE], 1, 2
    torch.set_num_threads(arguments.threads)
    if arguments.allocator == "kept":
        keep_freed_memory()
    else:
        vars(execution)["keep_freed_memory"] = lambda: False
    with tempfile.TemporaryDirectory() as root:
        results = [measure(case, Path(root), arguments=arguments) for case in cases]
    document = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "machine": platform.machine(),
        "threads": arguments.threads,
        "allocator": arguments.allocator,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
        "results": results,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    for row in results:
        show(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
