"""Local paths as users write them, in a recipe or behind an option, and files of JSON there."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError, RecipeError


def local_path(text: str) -> Path:
    """Returns the path with ``~`` and ``~name`` replaced by a home directory, as a shell does.

    A recipe and an option's value (``--workspace=~/runs``) reach the program without a shell that would do it. The text
    itself stays in the recipe, so that an artefact's identity does not depend on whose home it was made in.

    Raises:
        RecipeError: the home directory is unknown, because there is no such user.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise RecipeError("this path names the home of an unknown user", seen=repr(text)) from error


def regular(path: Path) -> Path:
    """Returns the path, or raises an OSError where a device or a pipe is there: reading it may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a directory is refused by whoever reads it
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object that a file holds.

    Raises:
        DataError: the file is missing, cannot be read, or holds something else.
    """
    try:
        value = json.loads(regular(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise DataError("no such file", where=path) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError("cannot read JSON", where=path, seen=getattr(error, "strerror", None) or str(error)) from error
    if not isinstance(value, dict):
        raise DataError("cannot read JSON", where=path, seen=type(value).__name__, expected="an object")
    return value
