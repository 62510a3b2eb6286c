"""Trainwright: one recipe from plan to served model, with predictions held against measurements.

What stands in ``__all__`` is public (docs/en/python.md); everything below is not and may change. Each name is imported
when it is first used, so that ``import trainwright`` is instant and planning needs no torch.
"""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "explain": "trainwright.api",
    "load_recipe": "trainwright.api",
    "open_artifact": "trainwright.api",
    "plan": "trainwright.api",
    "recommend": "trainwright.api",
    "run": "trainwright.api",
    "sweep": "trainwright.api",
    "Artifact": "trainwright.artifact.store",
    "Explanation": "trainwright.planner.explain.formula",
    "ModelSpec": "trainwright.spec.model",
    "Plan": "trainwright.spec.plan",
    "Recipe": "trainwright.spec.recipe",
    "Recommendation": "trainwright.planner.search.ranking",
    "Sweep": "trainwright.planner.plan.sweep",
    "TrainwrightError": "trainwright.core.errors",
    "DataError": "trainwright.core.errors",
    "DoesNotFit": "trainwright.core.errors",
    "Interrupted": "trainwright.core.errors",
    "MachineError": "trainwright.core.errors",
    "RecipeError": "trainwright.core.errors",
    "RecipeErrors": "trainwright.core.errors",
    "TrainingError": "trainwright.core.errors",
}
__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604  # type checkers read __init__.pyi


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'trainwright' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
