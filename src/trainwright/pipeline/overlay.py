"""Keys of a step, laid over the recipe that it goes on from: merged and checked as overrides are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from trainwright.core.config.layers import merge
from trainwright.core.config.problems import translate
from trainwright.core.config.shape import of_model
from trainwright.core.config.tree import DEFAULT, Node, ValueOrigin, node_of
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.spec.recipe import Recipe


def laid_over(recipe: Recipe, sections: Mapping[str, Mapping[str, Any]], *, at: str) -> Recipe:
    """Returns the recipe with other values for some keys, and without a list of steps.

    Args:
        recipe: what the keys are laid over.
        sections: keys by section; mappings are merged key by key, lists and scalars are replaced.
        at: the dotted key under which ``sections`` stand, for errors.

    Raises:
        RecipeErrors: each problem, its ``where`` the dotted key below ``at``.
    """
    base = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"stages"})
    upper = {name: _placed(keys, f"{at}.{name}") for name, keys in sections.items()}
    problems: list[RecipeError] = []
    shape = of_model(Recipe)
    tree = merge(node_of(base, DEFAULT), Node(content=upper, origin=_key(at)), shape, problems)
    try:
        changed = Recipe.model_validate(tree.plain())
    except ValidationError as error:
        problems += translate(error, tree, shape)
    if problems:
        raise RecipeErrors(_without_key(problem, at) for problem in problems)
    return changed


def _key(name: str) -> ValueOrigin:
    return ValueOrigin(layer="override", where=name)


def _placed(value: Any, key: str) -> Node:
    """Returns a tree whose values come from the keys below ``key``."""
    if isinstance(value, dict):
        return Node(content={name: _placed(item, f"{key}.{name}") for name, item in value.items()}, origin=_key(key))
    if isinstance(value, list):
        return Node(content=[_placed(item, f"{key}.{index}") for index, item in enumerate(value)], origin=_key(key))
    return Node(content=value, origin=_key(key))


def _without_key(problem: RecipeError, at: str) -> RecipeError:
    """Returns the problem without the key in its text, which its place names."""
    key = (problem.where or "").removeprefix(f"{at}.")
    return problem.at(problem.where, what=problem.what.removeprefix(f"{key}: "))
