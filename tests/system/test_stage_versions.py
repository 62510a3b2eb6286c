"""What each stage makes of the tiny recipe, held to the golden of its version.

A stage whose output changes gets another version in ``pipeline/graph.py``, so that results of the former code are not
taken for those of the new one. With the new version its golden is written anew, and the former one deleted:

    WRITE_GOLDEN=1 python -m pytest tests/system/test_stage_versions.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from trainwright.core.fingerprint import file_digest
from trainwright.pipeline.graph import STAGES

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "stages"
OF_ITS_OWN = ("optimize.techniques=[fused-update]", "optimize.steps=6", "optimize.warmup_steps=1")
"""Keys of stages that a run does not make, so that each takes seconds."""
TOLERANCE = 1e-2
"""Relative difference of a float that another processor's order of sums may cause after 12 steps.

Runs with the instructions of AVX-512, of AVX2 and of neither differ by 2e-3; after 150 steps they would by 3e-2. A rate
5 % higher differs by 2e-2.
"""


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def keys(value: Any) -> Any:
    """The names in a record, without its values: what a machine measures is another each time."""
    if isinstance(value, dict):
        return {name: keys(item) for name, item in sorted(value.items())}
    return [keys(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else "value"


def doctor(folder: Path) -> Any:
    record = read(folder / "machine.json")
    return {"names": sorted(record), "facts": sorted(record["facts"])}


def plan(folder: Path) -> Any:
    record = read(folder / "plan.json")
    named = ("sequence_tokens", "batch_tokens", "steps", "optimizer", "validations")
    return {"parameters": record["parameters"], "workload": {name: record["workload"][name] for name in named}}


def data(folder: Path) -> Any:
    return {
        path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.suffix in (".tokens", ".index")
    } | {"tokenizer.json": file_digest(folder / "tokenizer.json")}


def train(folder: Path) -> Any:
    summary = read(folder / "summary.json")
    norms = {name: float(tensor.norm()) for name, tensor in sorted(load_file(folder / "model.safetensors").items())}
    return {"steps": summary["steps"], "train_loss": summary["train_loss"], "norms": norms}


def optimize(folder: Path) -> Any:
    record = read(folder / "ladder.json")
    decided = ("tuned", "given")  # by what was measured
    names = keys({key: value for key, value in record.items() if key not in decided})
    return {"names": names, "start": record["start"]}


def evaluate(folder: Path) -> Any:
    splits = read(folder / "evaluation.json")["splits"]
    measured = ("seconds", "baselines")
    return {
        name: {key: split[key] for key in ("metrics", "count", "unit", "record")}
        | {"names": keys({key: value for key, value in split.items() if key not in measured})}
        for name, split in splits.items()
    }


def audit(folder: Path) -> Any:
    # Which quantities there are depends on what a machine can measure; a class of them is always there.
    return sorted({row["group"] for row in read(folder / "audit.json")["rows"]})


def export(folder: Path) -> Any:
    bundle = folder / "huggingface"
    tensors = load_file(bundle / "model.safetensors")
    return {
        "files": sorted(path.name for path in bundle.iterdir()),
        "card": re.sub(r"[0-9][0-9.,]*", "#", (bundle / "README.md").read_text(encoding="utf-8")).splitlines(),
        "config": read(bundle / "config.json"),
        "tensors": {name: list(tensor.shape) for name, tensor in sorted(tensors.items())},
    }


def serve(folder: Path) -> Any:
    record = read(folder / "answer.json")
    return {"names": keys(record["request"]), "usage": record["response"]["usage"]}


def report(folder: Path) -> Any:
    page = (folder / "report.html").read_text(encoding="utf-8")
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", page)


OUTPUTS: dict[str, Callable[[Path], Any]] = {
    each.__name__: each for each in (doctor, plan, data, train, optimize, evaluate, audit, export, serve, report)
}


def close(expected: Any, seen: Any) -> bool:
    """Equal, floats within the tolerance."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        return expected.keys() == seen.keys() and all(close(expected[name], seen[name]) for name in expected)
    if isinstance(expected, list) and isinstance(seen, list):
        return len(expected) == len(seen) and all(map(close, expected, seen))
    if isinstance(expected, float) and isinstance(seen, float):
        return abs(expected - seen) <= TOLERANCE * abs(expected)
    return expected == seen


def golden_of(name: str) -> Path:
    return GOLDEN / f"{name}-v{STAGES[name].version}.json"


@pytest.mark.parametrize("name", list(STAGES))
def test_an_output_changes_with_the_version_of_its_stage(begun, name) -> None:
    if not STAGES[name].usual:
        done = begun.call(name, *OF_ITS_OWN)
        assert done.returncode == 0, done.stderr + done.stdout
    seen = json.loads(json.dumps(OUTPUTS[name](begun.artifact(name))))
    golden = golden_of(name)
    if "WRITE_GOLDEN" in os.environ:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    assert golden.is_file(), f"version {STAGES[name].version} of {name} has no golden: see this file's first lines"
    expected = read(golden)
    assert close(expected, seen), (
        f"the output of {name} changed: raise its version in pipeline/graph.py and write its golden "
        f"(see this file's first lines)\nexpected {expected}\nseen     {seen}"
    )


def test_there_is_one_golden_for_each_stage() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {golden_of(name).name for name in STAGES}


def test_a_difference_is_seen() -> None:
    assert close({"loss": 2.0, "names": ["a"]}, {"loss": 2.001, "names": ["a"]})
    assert not close({"loss": 2.0}, {"loss": 2.05})
    assert not close({"names": ["a"]}, {"names": ["b"]})
    assert not close({"steps": 150}, {"steps": 151})
    assert not close({"a": 1}, {"a": 1, "b": 2})
