"""The files of a model on Hugging Face's hub, by its own library: from its cache, or downloaded into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from trainwright.artifact.hub.base import FORM, OnHub, is_whole
from trainwright.artifact.model_folder import (
    CHAT_TEMPLATE,
    HUGGINGFACE,
    IMAGE_PROCESSOR,
    INDEX,
    SHAPE_FILE,
    TOKENIZER,
    WEIGHTS,
    weight_files,
)
from trainwright.core.errors import DataError, MachineError, RecipeError, in_one_line

SMALL_FILES = ("*.json", CHAT_TEMPLATE)
"""Shape, tokenizer, template, and where weights lie in many files their names."""


def snapshot(model: OnHub, *, weights: bool) -> Path:
    """Returns the folder of a model in the cache, with what is asked for. Raises as ``base_folder``."""
    folder = _cached(model) or _download(model, SMALL_FILES, progress=_Silent)
    if not weights or is_whole(folder):
        return folder
    # Of the commit that the small files are of, whatever the branch has come to since.
    commit = OnHub(repository=model.repository, revision=folder.name)
    if not (folder / INDEX).is_file():  # others fill the cache too: that it has no index says nothing of the hub
        _download(commit, SMALL_FILES, progress=_Silent)
    names = [path.name for path in weight_files(folder)] if (folder / INDEX).is_file() else [WEIGHTS]
    whole = _download(commit, names)
    if not is_whole(whole):
        fix = "name a model that has been converted, or convert it with transformers' save_pretrained"
        raise DataError("no weights in safetensors here", where=model, expected=f"{WEIGHTS} or {INDEX}", fix=fix)
    return whole


def _cached(model: OnHub) -> Path | None:
    """Returns the folder of a model's small files where the cache has them.

    A configuration alone, which is what other software of the hub asks for first, is not taken for them: without the
    files beside it a recipe would mean another tokenizer.
    """
    try:
        folder = Path(
            snapshot_download(
                model.repository,
                revision=model.revision,
                allow_patterns=list(SMALL_FILES),
                local_files_only=True,
                tqdm_class=_Silent,
            )
        )
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise RecipeError("not the name of a model on the hub", seen=repr(str(model)), expected=FORM) from error
    shape = any((folder / name).is_file() for name in (SHAPE_FILE, HUGGINGFACE))
    reads = any((folder / name).is_file() for name in (TOKENIZER, IMAGE_PROCESSOR))
    return folder if shape and reads else None


def _download(model: OnHub, names: list[str] | tuple[str, ...], *, progress: type[tqdm] = tqdm) -> Path:
    with _asking(model):
        return Path(
            snapshot_download(
                model.repository, revision=model.revision, allow_patterns=list(names), tqdm_class=progress
            )
        )


class _Silent(tqdm):
    """A bar that is not shown: of files that are there in a moment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"disable": True})  # type: ignore[no-untyped-call]


@contextmanager
def _asking(model: OnHub) -> Iterator[None]:
    """Turns what the hub's library raises into our errors; what the disk says stays an OSError."""
    page = f"{constants.ENDPOINT}/{model.repository}"
    try:
        yield
    except GatedRepoError as error:
        fix = f"accept its terms at {page}, then log in with: hf auth login (or set HF_TOKEN)"
        raise DataError(
            "the hub gives this model to those alone who accepted its terms", where=model, fix=fix
        ) from error
    except RepositoryNotFoundError as error:
        fix = f"look for it at {page}; of a private one log in with: hf auth login (or set HF_TOKEN)"
        raise DataError("the hub has no such model, or a private one", where=model, fix=fix) from error
    except RevisionNotFoundError as error:
        fix = f"its branches and tags are at {page}/refs"
        raise DataError("this model has no such revision", where=model, seen=model.revision, fix=fix) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, ConnectionError, TimeoutError) as error:
        raise _unreachable(model, error) from error
    except OSError:
        raise
    except Exception as error:  # the library hands on what its client of HTTP raises, which changed with its versions
        raise _unreachable(model, error) from error


def _unreachable(model: OnHub, error: Exception) -> MachineError:
    """Returns the error of a hub that does not answer, by the first cause that is known."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    revision = "" if model.revision is None else f" --revision {model.revision}"
    fix = (
        f"where there is a network, run: hf download {model.repository}{revision} --local-dir FOLDER; then bring the "
        "folder here and name it in place of this"
    )
    return MachineError(
        "the hub cannot be reached, and its cache here lacks this model", where=model, seen=in_one_line(cause), fix=fix
    )
