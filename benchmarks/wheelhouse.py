"""Gathers in wheelhouse/ what a machine with torch alone lacks for training, for the CUDA tests and their comparison.

    python benchmarks/wheelhouse.py --python 3.12 --machine x86_64

Which packages: the closure of the extra `train`, of the tests' tools and of Hugging Face's Trainer, without torch,
what torch brings itself, and TensorBoard, at the versions of constraints.txt. The sum of their sizes is asked for
first; more than MOST_MB is refused before anything is fetched. Copy the folder to the machine: `make gpu` installs from
it, and so does `pip install --no-index --no-deps --find-links wheelhouse -r wheelhouse/requirements.txt trainwright`.
Needs the developer's environment and a network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MOST_MB = 60
ROOTS = ("trainwright[train]", "pytest", "pytest-timeout", "hypothesis", "beartype", "transformers", "accelerate")
THERE = {"torch", "setuptools"}
"""What the machine has (torch needs setuptools, too, from Python 3.12 on): with all that only it needs it stays out."""
SPARED = {"tensorboard"}
"""Training does without and says so once; with grpcio and pillow it weighs 22 MB."""
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
"""A wheel for an older Linux runs on a newer one; pip takes each name for itself."""


def closure(environment: dict[str, str]) -> set[str]:
    """Returns the names of all packages that the roots need on such a machine, torch's own left out."""
    found: set[str] = set()
    waiting = [Requirement(root) for root in ROOTS]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in THERE | SPARED or (name in found and not requirement.extras):
            continue
        found.add(name)
        waiting += list(_needs(requirement, environment))
    return found - {"trainwright"}


def _needs(requirement: Requirement, environment: dict[str, str]) -> Iterator[Requirement]:
    try:
        lines = requires(requirement.name) or []
    except PackageNotFoundError as error:
        raise SystemExit(f"wheelhouse: {requirement.name} is not in this environment: run make setup-dev") from error
    extras = ("", *requirement.extras)
    for each in map(Requirement, lines):
        if each.marker is None or any(each.marker.evaluate(environment | {"extra": extra}) for extra in extras):
            yield each


def pinned(names: set[str]) -> list[str]:
    """Returns the requirements of constraints.txt for these names.

    Raises:
        SystemExit: a package has no version there.
    """
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions: dict[str, str] = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    missing = sorted(names - versions.keys())
    if missing:
        raise SystemExit(f"wheelhouse: constraints.txt names no version of {', '.join(missing)}: make constraints")
    return sorted(versions[name] for name in names)


def sizes(requirements: list[str], options: list[str]) -> dict[str, int]:
    """Returns the bytes of each wheel, as its index says, before it is fetched."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps"]
    command += ["--report", "-", "--target", str(ROOT / "build" / "nowhere"), *options, *requirements]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or done.stderr.splitlines()
        raise SystemExit(f"wheelhouse: pip: {reasons[-1].removeprefix('ERROR: ') if reasons else done.returncode}")
    return dict(map(_size, json.loads(done.stdout)["install"]))


def _size(entry: dict[str, Any]) -> tuple[str, int]:
    url = entry["download_info"]["url"]
    request = urllib.request.Request(url, method="HEAD")  # an address that pip was given by its index
    with urllib.request.urlopen(request, timeout=30) as answer:  # the same
        return url.rpartition("/")[2], int(answer.headers["Content-Length"])


def main() -> int:
    """Say the sum, fetch the wheels, build ours beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="version of the machine's Python (default: 3.12)")
    parser.add_argument("--machine", default="x86_64", help="its processor (default: x86_64)")
    parser.add_argument("--folder", type=Path, default=ROOT / "wheelhouse")
    parser.add_argument("--dry-run", action="store_true", help="say the sum and fetch nothing")
    arguments = parser.parse_args()
    version, folder = arguments.python, arguments.folder
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arguments.machine,
        "os_name": "posix",
    }
    requirements = pinned(closure(environment))
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", version]
    options += [word for name in PLATFORMS for word in ("--platform", f"{name}_{arguments.machine}")]
    wheels = sizes(requirements, options)
    total = sum(wheels.values()) / 1e6
    largest = ", ".join(f"{name.partition('-')[0]} {size / 1e6:.1f}" for name, size in _largest(wheels))
    print(f"wheelhouse: {len(wheels)} wheels for Python {version}, {total:.1f} MB ({largest} MB)")
    if total > MOST_MB:
        print(f"wheelhouse: more than {MOST_MB} MB; nothing was fetched", file=sys.stderr)
        return 1
    if arguments.dry_run:
        return 0
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.whl"):
        path.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "--quiet", "--no-deps", "-d", str(folder), *options, *requirements], check=True)
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n")
    here = sum(path.stat().st_size for path in folder.glob("*.whl")) / 1e6
    print(f"wheelhouse: {here:.1f} MB in {folder}; copy it to the machine, and run make gpu there")
    return 0


def _largest(wheels: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(wheels.items(), key=lambda item: -item[1])[:4]


if __name__ == "__main__":
    sys.exit(main())
