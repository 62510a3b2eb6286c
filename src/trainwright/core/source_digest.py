"""Which code a plug-in runs, and the digest of it, which is a part of the address of what it makes."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainwright.core.errors import RecipeError
from trainwright.core.fingerprint import digest, file_digest

_INSTALLED = ("site-packages", "dist-packages")
_OURS = __name__.partition(".")[0]


def code_of(reference: str) -> tuple[str, ...]:
    """Returns a plug-in's reference, then those of the code that it declares, some of them modules without a name.

    What cannot be called declares in ``CODE`` which of its fields name the code that runs for it (``Family``,
    ``TaskKind``). That is known once the plug-in is imported, which reading a recipe does. Our own code is left out:
    stages are versioned.
    """
    module, _, name = reference.partition(":")
    value = getattr(sys.modules.get(module), name, None)
    declared = [getattr(value, field) for field in getattr(value, "CODE", ())] if not callable(value) else []
    return (reference, *(each for each in declared if each is not None and each.partition(".")[0] != _OURS))


def source_digest(reference: str) -> str:
    """Returns the sha256 (hex) of a plug-in's code, which is a part of the identity of what it makes.

    It covers the Python files of the whole top-level package of ``package.module:name``, because a plug-in may use any
    of them, or the one file of a module that stands alone; and what they import from the folder that holds them, unless
    that is one of installed packages. The code is not run, so that only import statements count. Our own package is
    represented by the module alone: what the rest of it makes is versioned by stage.

    Raises:
        RecipeError: there is no such package or module.
    """
    module_name = reference.partition(":")[0]
    package = module_name.partition(".")[0]
    ours = package == _OURS
    searched = module_name if ours else package
    try:
        spec = importlib.util.find_spec(searched)
    except (ModuleNotFoundError, ValueError) as error:
        raise RecipeError("cannot find this plug-in's code", seen=repr(reference)) from error
    if spec is None:
        fix = f"no module {searched!r}: is it installed?"
        raise RecipeError("cannot find this plug-in's code", seen=repr(reference), fix=fix)
    if ours or spec.submodule_search_locations is None:
        origin = Path(spec.origin or "")
        if ours or not origin.is_file():
            return digest(
                {"file": file_digest(origin) if origin.is_file() else f"{searched}, {spec.origin} of {sys.version}"}
            )
        return digest({"file": file_digest(origin)} | _beside(origin.parent, [origin]))
    # A package without __init__.py has a root for each time that its folder stands on the search path.
    roots = [Path(root) for root in dict.fromkeys(spec.submodule_search_locations)]
    beside = _beside(roots[0].parent, [path for root in roots for path in root.rglob("*.py")])
    return digest({"files": sorted(_python_files(roots))} | beside)


def _beside(folder: Path, modules: list[Path]) -> dict[str, dict[str, str]]:
    """Returns the digests of the modules and packages in ``folder`` that ``modules`` import, directly or not."""
    if folder.name in _INSTALLED or folder == Path(json.__file__).parents[1]:
        return {}
    known, waiting, digests = set(modules), list(modules), dict[str, str]()
    while waiting:
        for name in _imported(waiting.pop()) - {_OURS}:
            package = folder / name
            paths = package.rglob("*.py") if (package / "__init__.py").is_file() else [package.with_suffix(".py")]
            for path in {path for path in paths if path.is_file()} - known:
                known.add(path)
                waiting.append(path)
                digests[path.relative_to(folder).as_posix()] = file_digest(path)
    return {"beside": digests} if digests else {}


def _imported(path: Path) -> set[str]:
    """Returns top-level names that a Python file imports; none where it cannot be parsed: running it will tell."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def _python_files(roots: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for root in roots:
        for path in root.rglob("*.py"):
            yield path.relative_to(root).as_posix(), file_digest(path)
