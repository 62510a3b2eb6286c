"""The recipes that come with trainwright: the files of ``recipes/``, which a wheel has beside its catalogue.

The first line of each says what it is, and a line ``# Takes: ...`` how long it took where that was measured.
"""

from __future__ import annotations

from pathlib import Path

import trainwright
from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import unknown

TAKES = "# Takes: "


@dataclass(frozen=True, kw_only=True, slots=True)
class ShippedRecipe:
    """A recipe file.

    Attributes:
        name: of the file, without its ending.
        says: what it does, in a line.
        takes: how long, as it was measured; None where nobody did.
        text: of the whole file.
    """

    name: str
    says: str
    takes: str | None
    text: str


def shipped_recipes() -> dict[str, ShippedRecipe]:
    """Returns the recipes by their names, sorted."""
    return {path.stem: _read(path) for path in sorted(folder().glob("*.yaml"))}


def shipped_recipe(name: str) -> ShippedRecipe:
    """Returns a recipe by its name, with ``.yaml`` and its folder or without.

    Raises:
        RecipeError: there is no such recipe.
    """
    known, plain = shipped_recipes(), name.removeprefix("recipes/").removesuffix(".yaml")
    if plain not in known:
        raise RecipeError("no such recipe", where="NAME", **unknown(name, known))
    return known[plain]


def folder() -> Path:
    """Returns where the files are: in an installed package, else in the repository that it runs from."""
    package = Path(trainwright.__file__).parent
    installed = package / "catalog" / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def _read(path: Path) -> ShippedRecipe:
    text = path.read_text(encoding="utf-8")
    head = [line for line in text.splitlines() if line.startswith("#")]
    says = head[0].removeprefix("# ").rstrip(":.") if head else ""
    takes = next((line.removeprefix(TAKES) for line in head if line.startswith(TAKES)), None)
    return ShippedRecipe(name=path.stem, says=says, takes=takes, text=text)
