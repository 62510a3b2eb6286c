"""Where the files of a base or a teacher lie: in the folder that a recipe names, or in the cache of a hub."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.artifact.model_folder import HUGGINGFACE, SHAPE_FILE, weight_files
from trainwright.core.errors import DataError, MissingPackage, RecipeError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import local_path
from trainwright.core.registry import installed, load

SCHEME = "hf://"
FORM = "hf://OWNER/NAME or hf://OWNER/NAME@REVISION"
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class OnHub:
    """A model on the hub.

    Attributes:
        repository: ``OWNER/NAME``.
        revision: a branch, a tag or a commit; None: the main branch.
    """

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        """Returns it as a recipe names it."""
        return SCHEME + self.repository + ("" if self.revision is None else f"@{self.revision}")


def is_on_hub(text: str) -> bool:
    """Returns whether the name of a base is one of the hub."""
    return text.startswith(SCHEME)


def on_hub(text: str) -> OnHub:
    """Returns which model of the hub a text names. Raises a RecipeError where it has not the form of ``FORM``."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise RecipeError("not the name of a model on the hub", seen=repr(text), expected=FORM)
    return OnHub(repository=found[1], revision=found[2])


def base_folder(text: str, *, weights: bool) -> Path:
    """Returns the folder with the files of a base.

    Of a model on the hub the folder of its commit in the cache (``HF_HOME``). What the cache lacks is downloaded: shape
    and tokenizer, and where they are asked for weights. What it has is used as it is, without the network, so that a
    recipe means the same tomorrow; another ``@REVISION`` is another model.

    Args:
        text: as a recipe says it: a local path, or a name of the hub.
        weights: whether weights are wanted too.

    Raises:
        RecipeError: the name has not the form of one, or the path names the home of an unknown user.
        DataError: the hub has no such model, revision or file, or does not give it to everyone.
        MachineError: the hub cannot be reached, or its library is not installed.
    """
    if not is_on_hub(text):
        return local_path(text)
    model = on_hub(text)
    if not installed("huggingface_hub"):
        raise MissingPackage("huggingface_hub", needed_for=f"reading {text}", extra="train")
    folder: Path = load("trainwright.artifact.hub.snapshot:snapshot", kind="hub")(model, weights=weights)
    return folder


def shape_file(text: str) -> Path | None:
    """Returns the file that says a base's shape; None where it is not here and cannot be downloaded."""
    try:
        folder = base_folder(text, weights=False)
    except TrainwrightError:
        return None
    return next((folder / name for name in (SHAPE_FILE, HUGGINGFACE) if (folder / name).is_file()), None)


def is_whole(folder: Path) -> bool:
    """Returns whether the weights of the model in a folder are there, whatever they are."""
    try:
        return all(path.is_file() for path in weight_files(folder))
    except DataError:
        return False
