"""The answer to "which model?": a folder with weights, a name from the catalogue, or a kind's own small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwright.artifact.bundle import chat_model
from trainwright.artifact.hub.base import base_folder, is_on_hub
from trainwright.artifact.model_folder import CHAT_TEMPLATE, TOKENIZER_CONFIG, read_shape
from trainwright.core.errors import DataError, RecipeError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import local_path, read_object
from trainwright.core.spelling import did_you_mean
from trainwright.hardware.catalogue.models import find_model, model_names, normalised
from trainwright.pipeline.recipes.kinds import KINDS, SMALL, Kind
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.model import ModelSection, keys_of
from trainwright.spec.sections.task import TASKS

FIELD = "model"
EXAMPLES = {"encoder": "bert-base", "decoder": "llama3-8b", "vision": "vit-b-16"}
"""Of each kind of network a model of the catalogue."""
ASKED = ("family", "layers", "width", "heads")
"""Keys that stand in a recipe whatever the family's defaults are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenModel:
    """What a recipe's ``model`` section says.

    Attributes:
        name: what was answered.
        keys: of ``model``.
        shape: None of a kind's own small network, whose sizes follow from the data.
        folder: with the weights that training begins with; None: weights are random.
        missing: the folder is not there yet.
        has_template: chats are read as its files say.
    """

    name: str
    keys: dict[str, Any]
    shape: ModelSpec | None = None
    folder: Path | None = None
    missing: bool = False
    has_template: bool = False

    @property
    def parameters(self) -> int:
        """Returns the parameters; 0 of a small network."""
        return 0 if self.shape is None else total_parameters(self.shape)


def chosen_model(answer: str, kind: Kind) -> ChosenModel:
    """Returns the model that an answer names, for a recipe of a kind.

    Args:
        answer: a folder with a model in it or a workspace with one, a name from the catalogue, or ``small``.
        kind: of the recipe.

    Raises:
        RecipeError: there is no such model, or it cannot learn the kind's task.
        DataError: the folder has no model, or one that cannot be read.
    """
    if not answer:
        raise RecipeError("no model is named", field=FIELD, expected=expected(kind))
    if answer == SMALL and kind.small is not None:
        return ChosenModel(name=SMALL, keys=dict(kind.small))
    if is_on_hub(answer):
        return _in_folder(_downloaded(answer), answer, kind)
    place = local_path(answer)
    if place.is_dir():
        return _in_folder(place, answer, kind)
    if "/" in answer and answer.startswith((".", "/", "~")):
        raise RecipeError("no such folder", field=FIELD, seen=repr(answer), expected=expected(kind))
    published = find_model(answer)
    if published is None:
        near = did_you_mean(normalised(answer), model_names())
        raise RecipeError("unknown model", field=FIELD, seen=repr(answer), expected=expected(kind), fix=near)
    shape = published.spec
    if not isinstance(shape, ModelSpec):
        raise RecipeError("this model can be planned, not trained", field=FIELD, seen=answer, expected=expected(kind))
    _check_network(shape, answer, kind)
    keys = shortest(shape, answer)
    if not kind.from_base:
        return ChosenModel(name=answer, keys=keys, shape=shape)
    folder = Path(published.name)
    return ChosenModel(name=answer, keys={"init_from": str(folder), **keys}, shape=shape, folder=folder, missing=True)


def expected(kind: Kind) -> str:
    """Returns what may be answered."""
    networks = TASKS[kind.task["name"]].networks
    example = next(name for network, name in EXAMPLES.items() if network in networks)
    own = [] if kind.small is None else [f"{SMALL} ({kind.small['layers']} layers, random weights)"]
    weights = (
        ["a folder with a Hugging Face model or one that was trained here, hf://OWNER/NAME"] if kind.from_base else []
    )
    name = f"a name such as {example} (trainwright catalog models lists them)"
    return ", or ".join((*own, *weights, name))


def _downloaded(answer: str) -> Path:
    """Returns the folder with the small files of a model on the hub. Raises as ``base_folder``, about the model."""
    try:
        return base_folder(answer, weights=False)
    except TrainwrightError as error:
        raise error.at(None, seen=answer if error.seen is None else f"{answer}: {error.seen}").about(FIELD) from error


def _in_folder(place: Path, answer: str, kind: Kind) -> ChosenModel:
    if not kind.from_base:
        others = [name for name, each in KINDS.items() if each.needs_base and each.task == kind.task]
        fix = f"trainwright init {others[0]} goes on from its weights" if others else None
        raise RecipeError("this kind begins with random weights", field=FIELD, seen=answer, fix=fix)
    try:
        folder = chat_model(place)
        shape = read_shape(folder)
    except TrainwrightError as error:
        seen = error.where if error.seen is None else f"{error.where}: {error.seen}"
        raise error.at(None, seen=seen).about(FIELD).with_fix(None) from error
    _check_network(shape, answer, kind)
    template = (folder / CHAT_TEMPLATE).is_file() or _says_template(folder / TOKENIZER_CONFIG)
    named = answer if is_on_hub(answer) else str(folder)
    return ChosenModel(name=answer, keys={"init_from": named}, shape=shape, folder=folder, has_template=template)


def _says_template(path: Path) -> bool:
    try:
        return path.is_file() and "chat_template" in read_object(path)
    except DataError:  # reported when the recipe is checked
        return False


def _check_network(shape: ModelSpec, answer: str, kind: Kind) -> None:
    networks = TASKS[kind.task["name"]].networks
    if shape.kind not in networks:
        raise RecipeError(
            "a network of another kind learns this task",
            field=FIELD,
            seen=f"{answer}: {shape.kind}",
            expected=" or ".join(networks),
        )


def shortest(shape: ModelSpec, name: str) -> dict[str, Any]:
    """Returns the keys that ask for a shape, without those that follow from the others.

    Raises:
        RecipeError: no recipe says this shape.
    """
    keys = keys_of(shape)

    def asks(some: dict[str, Any]) -> bool:
        try:
            built = ModelSection.model_validate(some).spec(vocabulary=shape.vocabulary)
            return not built.body_differences(shape)  # the head is the task's
        except (TrainwrightError, ValueError):
            return False

    if not asks(keys):
        raise RecipeError(
            "no recipe says this model's shape", field=FIELD, seen=name, fix="give a folder with its weights"
        )
    for key in [key for key in keys if key not in ASKED]:
        fewer = {name: value for name, value in keys.items() if name != key}
        keys = fewer if asks(fewer) else keys
    return keys
