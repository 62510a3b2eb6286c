"""How long frozen records take to define, by decorator: a command that plans defines more than a hundred.

    python benchmarks/records.py [--rounds 5]

Each decorator makes the same classes in a process of its own: seconds of the processor from the first to the last one,
the median of all rounds, which are interleaved. attrs is compared where it is installed (``pip install attrs``).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from importlib.util import find_spec

CLASSES, FIELDS = 130, 8
DECORATORS = {
    "standard library": "from dataclasses import dataclass as made",
    "core/frozen.py": "from trainwright.core.frozen import dataclass as made",
    "attrs, without slots": "import attrs; made = lambda frozen: attrs.frozen(slots=False)",
    "attrs, with slots": "import attrs; made = lambda frozen: attrs.frozen",
}
PROGRAM = """
import time
{decorator}
fields = "".join(f"    field_{{number}}: int = {{number}}\\n" for number in range({fields}))
text = "".join(f"@made(frozen=True)\\nclass Record{{number}}:\\n{{fields}}" for number in range({classes}))
code, names = compile(text, "records", "exec"), {{"made": made, "__name__": "records"}}
start = time.process_time()
exec(code, names)
print(time.process_time() - start)
"""


def seconds(decorator: str) -> float:
    """The processor's seconds that one process takes to define all classes."""
    program = PROGRAM.format(decorator=decorator, fields=FIELDS, classes=CLASSES)
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    chosen = {name: text for name, text in DECORATORS.items() if "attrs" not in name or find_spec("attrs")}
    taken: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, text in chosen.items():
            taken[name].append(seconds(text))
    print(f"{CLASSES} frozen classes of {FIELDS} fields, Python {sys.version.split()[0]}")
    for name, each in taken.items():
        print(f"{name:24} {statistics.median(each):.3f} s")
    if len(chosen) < len(DECORATORS):
        print("attrs is not installed: pip install attrs")


if __name__ == "__main__":
    main()
