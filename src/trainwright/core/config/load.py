"""Read the layers, put them together, validate, and remember where every value came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from trainwright.core.config.layers import merge, read_environment, read_file, read_overrides
from trainwright.core.config.problems import translate
from trainwright.core.config.shape import of_model
from trainwright.core.config.tree import DEFAULT, Node, ValueOrigin, dotted, leaves, said, shown
from trainwright.core.errors import RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import did_you_mean

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[T]):
    """A validated configuration.

    Attributes:
        value: the model.
        leaves: dotted key -> final value (as JSON), for every scalar and empty list or mapping.
        origins: dotted key -> where the value comes from, for the same keys.
        tree: what the layers wrote, defaults left out.
    """

    value: T
    leaves: Mapping[str, Any]
    origins: Mapping[str, ValueOrigin]
    tree: Node

    def located(self, problem: TrainwrightError) -> TrainwrightError:
        """Returns a problem that names a dotted key, with the place where it, or the section around it, was written."""
        parts = (problem.where or "").split(".")
        if problem.where is None or parts[0] not in type(self.value).model_fields:
            return problem
        node, origin = self.tree, self.tree.origin
        for part in parts:
            below = node.child(int(part) if isinstance(node.content, list) and part.isdecimal() else part)
            if below is None:
                break
            node, origin = below, below.origin
        return problem.at(origin, what=said(problem.where, problem.what, origin))

    def describe(self, key: str) -> str:
        """``train.lr = 0.0003  (override train.lr)``, one line for each value under ``key``.

        Raises:
            RecipeError: no such key.
        """
        below = [leaf for leaf in self.leaves if leaf == key or leaf.startswith(f"{key}.")]
        if not below:
            raise RecipeError("no such key", seen=repr(key), fix=did_you_mean(key, self.leaves))
        return "\n".join(f"{leaf} = {shown(self.leaves[leaf])}  ({self.origins[leaf]})" for leaf in below)


def load(
    model: type[T],
    *,
    files: Sequence[Path] = (),
    preset: Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str],
    prefix: str = "TRAINWRIGHT_",
    ignore: Collection[str] = (),
    beneath: Callable[[Node], Node | None] | None = None,
) -> Loaded[T]:
    """Returns the validated ``model`` from defaults < preset < files < environment < overrides; the last one wins.

    Args:
        model: any pydantic model; ``extra="forbid"`` makes unknown keys errors.
        files: YAML or ``.json`` files, weakest first.
        preset: a YAML fragment below the files.
        overrides: ``key.key=value``; a value is a YAML 1.2 scalar, ``[list]``, ``{mapping}`` or quoted text.
        environ: variables ``<prefix>KEY__KEY``, values as in overrides.
        prefix: what the variables' names begin with.
        ignore: names with the prefix that are not keys of the model.
        beneath: is shown what all layers wrote and returns what else follows from it, a layer below them all, or None.

    Raises:
        RecipeErrors: every problem of every layer, one line each.
        TrainwrightError: as ``beneath``.
    """
    problems: list[RecipeError] = []
    layers = [read_file(preset, problems, preset=True)] if preset is not None else []
    layers += [read_file(path, problems) for path in files]
    readable = all(layer is not None for layer in layers)
    layers += read_environment(environ, prefix=prefix, ignore=ignore, problems=problems)
    layers += read_overrides(overrides, problems)
    if not readable:
        raise RecipeErrors(problems)
    start = str(files[0]) if files else str(preset) if preset is not None else "recipe"
    root = Node(content={}, origin=ValueOrigin(layer="file", where=start))
    shape = of_model(model)
    for layer in layers:
        assert layer is not None
        root = merge(root, layer, shape, problems)
    if beneath is not None and (lowest := beneath(root)) is not None:
        root = merge(lowest, root, shape, problems)
    try:
        value = model.model_validate(root.plain())
    except ValidationError as error:
        raise RecipeErrors(problems + translate(error, root, shape)) from error
    if problems:
        raise RecipeErrors(problems)
    values = {dotted(path): (path, leaf) for path, leaf in leaves(value.model_dump(mode="json", by_alias=True)) if path}
    return Loaded(
        value=value,
        leaves={key: leaf for key, (_, leaf) in values.items()},
        origins={key: _origin(root, path) for key, (path, _) in values.items()},
        tree=root,
    )


def _origin(root: Node, path: tuple[str | int, ...]) -> ValueOrigin:
    """Returns the origin of a final value: of what was written there, or around it where one text gives several."""
    node = root
    for part in path:
        below = node.child(part)
        if below is None:
            return DEFAULT if isinstance(node.content, dict) else node.origin
        node = below
    return node.origin
