"""Help and planning work on a small install: every package beyond the core dependencies is absent here."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# sys.modules[name] = None is how Python says "this is not installed": importing it raises ModuleNotFoundError, and
# importlib.util.find_spec finds nothing.
RUN = """
import sys
absent, sys.argv = sys.argv[1].split(","), ["trainwright", *sys.argv[2:]]
sys.modules.update(dict.fromkeys(absent))
from trainwright.cli.main import main
code = main()
sys.exit(code)
"""


@pytest.fixture(scope="module")
def absent(repository) -> str:
    """Import names of everything installed here that ``pip install trainwright`` alone would not bring."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = _closure(project["dependencies"])
    names = {
        name
        for name, owners in packages_distributions().items()
        if name != "trainwright" and not {canonicalize_name(owner) for owner in owners} & core
    }
    assert {"torch", "tokenizers", "pyarrow", "jinja2"} <= names
    return ",".join(sorted(names))


def test_help_loads_nothing_heavy(absent, tmp_path):
    assert "usage" in _run(absent, "--help", cwd=tmp_path).lower()


def test_planning_needs_no_torch(absent, tmp_path, repository):
    recipe = repository / "recipes" / "quickstart.yaml"
    assert _run(absent, "plan", str(recipe), cwd=tmp_path)


def test_planning_from_weights_loads_no_torch(tmp_path, repository):
    from fixtures.tiny_models import decoder, tokenizer, write_trained

    base = write_trained(tmp_path / "base", decoder(), tokenizer())
    shape = "model={layers: 3, width: 32, heads: 4, kv_heads: 2, ffn_width: 48, context_tokens: 96, family: llama}"
    arguments = [
        "plan",
        str(repository / "recipes" / "quickstart.yaml"),
        shape,
        f"model.init_from={base}",
        "train.sequence_tokens=32",
    ]
    code = "from trainwright.cli.main import main; assert main() == 0; sys.exit('torch' in sys.modules)"
    program = f"import sys; sys.argv = {['trainwright', *arguments]}; {code}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot run" not in done.stderr


@pytest.mark.parametrize("device", ["8xh100-sxm", "rtx-4090"])
def test_a_plan_of_a_cluster_loads_nothing_that_it_has_no_use_for(tmp_path, device):
    """Whether it fits or not: each of these takes 2 to 200 ms, of 300 in which a plan is to be there."""
    idle = ["pydantic", "torch", "matplotlib", "numpy.ma", "importlib.resources", "trainwright.render.pictures"]
    arguments = ["trainwright", "plan", "--model", "llama3.1-8b", "--on", device]
    code = f"import sys; sys.argv = {arguments}; from trainwright.cli.main import main; main()"
    program = f"{code}; sys.exit(', '.join(sys.modules.keys() & set({idle})) or 0)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _run(absent: str, *arguments: str, cwd) -> str:
    command = [sys.executable, "-c", RUN, absent, *arguments]
    done = subprocess.run(command, cwd=cwd, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _closure(requirements: list[str]) -> set[str]:
    """The distributions that these requirements bring, directly or not."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in requires(name) or []]
    return found
