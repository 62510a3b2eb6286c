"""No cycles, no imports hidden in functions, and nothing imported that the stage's extra does not install.

The layers themselves are contracts of import-linter in pyproject.toml (``make lint``).
"""

from __future__ import annotations

import ast
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Where a function may import, and why. A path ending in "/" stands for everything below it.
FUNCTION_IMPORTS = {
    "src/trainwright/cli/": "a command loads what it needs when it runs: --help stays under 0.2 s",
    "src/trainwright/pipeline/": "a stage's package is loaded when the stage runs, and not when it is skipped",
    "src/trainwright/render/pictures/": "matplotlib is an extra: it is loaded when a picture is drawn",
    "src/trainwright/render/progress.py": "rich is loaded where bars are drawn on a terminal",
    "src/trainwright/core/extension.py": "a recipe is checked by pydantic; a plan without a recipe never loads it",
    "src/trainwright/core/registry.py": "package.module:name in a recipe is loaded when it is used",
    "src/trainwright/model/families/": "a recipe is checked by ``to_config`` before torch is needed",
    "src/trainwright/model/experts/names.py": "what families with experts share is needed without torch as they are",
    "src/trainwright/hardware/prices/snapshot.py": "writing a list loads pydantic; reading one for a plan never does",
    "tests/": "a test may import what it is about where it needs it, such as torch after the environment is set",
    "benchmarks/": "a competitor is imported when it is measured",
}

# Which extra a part of the package may count on beside the core dependencies; the longest prefix decides.
EXTRAS = {
    "src/trainwright/artifact/hub/snapshot.py": "train",
    "src/trainwright/model/": "train",
    "src/trainwright/runtime/": "train",
    "src/trainwright/stages/data/": "data",
    "src/trainwright/stages/doctor/": "train",
    "src/trainwright/stages/train/": "train",
    "src/trainwright/stages/evaluate/": "train",
    "src/trainwright/stages/evaluate/harness/": "train,benchmarks",
    "src/trainwright/stages/evaluate/words.py": "train,baselines",
    "src/trainwright/stages/tune/": "train",
    "src/trainwright/stages/compress/": "train",
    "src/trainwright/stages/export/": "export",
    "src/trainwright/stages/serve/": "serve",
    "src/trainwright/stages/report/": "report",
    "src/trainwright/testing/": "all,dev",
}


def test_no_cycles(graph):
    sorter = TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    try:
        sorter.prepare()
    except CycleError as error:
        raise AssertionError("import cycle: " + " -> ".join(error.args[1])) from None


def test_function_level_imports_only_where_loading_late_is_the_point(sources):
    hidden = []
    for source in sources:
        if any(source.name.startswith(allowed) for allowed in FUNCTION_IMPORTS):
            continue
        for function in source.functions():
            found = (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))
            hidden.extend(f"{source.name}:{node.lineno}" for node in found)
    assert not hidden, f"imports inside functions: {sorted(set(hidden))}"


def test_every_package_imported_is_one_that_the_extra_installs(package, repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = _distributions(project["dependencies"], project)
    owners = packages_distributions()
    missing = []
    for source in package:
        prefix = max((p for p in EXTRAS if source.name.startswith(p)), key=len, default=None)
        extras = EXTRAS[prefix].split(",") if prefix else []
        declared = core.union(*(_distributions(project["optional-dependencies"][extra], project) for extra in extras))
        for line, name in _module_level_imports(source.tree):
            if name in sys.stdlib_module_names or name == "trainwright":
                continue
            if not {canonicalize_name(owner) for owner in owners.get(name, [name])} & declared:
                missing.append(f"{source.name}:{line} imports {name}")
    assert not missing, f"not installed by the extra of that package: {missing}"


def _module_level_imports(tree: ast.Module) -> list[tuple[int, str]]:
    """Top-level names imported when the module is loaded; what stands under ``if TYPE_CHECKING`` is not."""
    found: list[tuple[int, str]] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.partition(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, (node.module or "").partition(".")[0]))
    return found


def _distributions(requirements: list[str], project: dict) -> set[str]:
    """Names of the distributions, with the project's own extras (``trainwright[train]``) unfolded."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == project["name"]:
            for extra in requirement.extras:
                found |= _distributions(project["optional-dependencies"][extra], project)
        else:
            found.add(canonicalize_name(requirement.name))
    return found
