"""How fast a corpus becomes token shards, phase by phase, beside Hugging Face ``tokenizers`` on the same documents.

    python benchmarks/data_prep.py                      # the standard library of this Python
    python benchmarks/data_prep.py --copies 20          # larger: each text 20 times with another first line
    python benchmarks/data_prep.py --workers 2 --vocabulary 32768

Prints a table; ``--json`` prints one JSON object. Peak memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.spec.recipe import Recipe
from trainwright.stages.data.parts import read_documents
from trainwright.stages.data.stage import run
from trainwright.testing.artifacts import train_tokenizer


def corpus(folder: Path, copies: int) -> dict[str, Any]:
    """The source: the standard library itself, or a file of ``copies`` variants of each of its texts."""
    if copies == 1:
        return {"kind": "python-stdlib"}
    path = folder / "corpus.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
            if "site-packages" not in file.parts:
                text = file.read_text(encoding="utf-8", errors="ignore")
                stream.writelines(json.dumps({"text": f"# {n}\n{text}"}) + "\n" for n in range(copies))
    return {"kind": "jsonl", "paths": [str(path)]}


def reference(documents: list[str], vocabulary: int) -> dict[str, float]:
    """Seconds that ``tokenizers`` takes to train on the documents and to encode them, on all cores."""
    begin = time.perf_counter()
    tokenizer = train_tokenizer(documents, vocabulary=vocabulary)
    trained = time.perf_counter()
    tokenizer.encode_batch_fast(documents)
    return {"tokenizer": trained - begin, "encode": time.perf_counter() - trained}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--workers", default="auto")
    parser.add_argument("--reference", action="store_true", help="also train and encode with tokenizers (slow)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recipe = Recipe.model_validate(
            {
                "name": "benchmark",
                "model": {"layers": 1, "width": 8, "heads": 1},
                "data": {
                    "sources": [corpus(folder, args.copies)],
                    "split": {"train": 0.9, "validation": 0.05, "test": 0.05},
                    "tokenizer": {"vocabulary": args.vocabulary},
                    "exec": {"workers": args.workers if args.workers == "auto" else int(args.workers)},
                },
            }
        )
        out = folder / "out"
        out.mkdir()
        with Events(None, run=recipe.name) as events:
            result = run(Context(recipe=recipe, out=out, events=events, root=folder))
        mib = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
        facts = {"kept_bytes": result.summary["bytes"], "peak_mib": round(mib), **result.execution}
        if args.reference:
            paths = sorted((out / ".parts").glob("bucket-*.docs"))
            documents = [text.decode() for path in paths for text in read_documents(path)]
            facts["reference_seconds"] = reference(documents, args.vocabulary)
    print(json.dumps(facts, indent=1) if args.json else table(facts))


def table(facts: dict[str, Any]) -> str:
    """One line for each phase: seconds, MB/s of kept text, and the reference's seconds."""
    lines = [f"{facts['kept_bytes'] / 1e6:.1f} MB kept, {facts['workers']} workers, peak {facts['peak_mib']} MiB"]
    for phase, seconds in facts["phase_seconds"].items():
        other = facts.get("reference_seconds", {}).get(phase)
        beside = f"   tokenizers alone: {other:.2f} s" if other else ""
        lines.append(f"{phase:<10} {seconds:8.2f} s {facts['kept_bytes'] / 1e6 / max(seconds, 1e-9):9.1f} MB/s{beside}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
