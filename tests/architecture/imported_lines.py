"""How many of our lines importing a package runs: ``python tests/architecture/imported_lines.py SRC PACKAGE ...``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

TRAINING = ("stages.train", "model.tasks", "model.families", "model.decoder")
"""What a recipe names is loaded by that name, so that no import statement shows it: it counts all the same."""

LOOKS = "stages.train.observe"
"""Loaded only where a training is looked at, beside the run."""
DRY_RUN = "stages.train.ranks.dry_run"
"""Loaded in a training's place."""
FAULTS = ("stages.train.faults.policy", "stages.train.faults.changes")
"""Loaded only once something has gone wrong."""


def imported_lines(packages: Iterable[str], sizes: Mapping[str, int], *, without: Iterable[str] = ()) -> dict[str, int]:
    """Returns the lines of each module that is imported, from those of all ``sizes``; ``without`` some packages."""
    graph = grimp.build_graph("trainwright", cache_dir=None, exclude_type_checking_imports=True)
    prefixes = tuple(f"trainwright.{name}." for name in packages)
    left_out = tuple(f"trainwright.{name}." for name in without)
    roots = {
        module
        for module in graph.modules
        if f"{module}.".startswith(prefixes) and not f"{module}.".startswith(left_out)
    }
    reached: set[str] = set()
    while waiting := roots - reached:
        module = waiting.pop()
        reached.add(module)
        roots |= {*graph.find_modules_directly_imported_by(module), *_parents(module)}
    return {module: sizes[module] for module in reached}


def _parents(module: str) -> list[str]:
    """``a`` and ``a.b`` for ``a.b.c``: importing a module runs the packages around it."""
    names = module.split(".")
    return [".".join(names[:depth]) for depth in range(1, len(names))]


def main(src: str, *packages: str) -> None:
    """Prints the lines of all that importing these packages of the source in ``src`` runs."""
    sys.path.insert(0, src)
    sizes = {}
    for path in Path(src, "trainwright").rglob("*.py"):
        parts = path.relative_to(src).with_suffix("").parts
        sizes[".".join(parts).removesuffix(".__init__")] = len(path.read_text(encoding="utf-8").splitlines())
    lines = imported_lines(packages or TRAINING, sizes)
    print(f"{sum(lines.values()):,} lines in {len(lines)} modules")


if __name__ == "__main__":
    main(*sys.argv[1:])
