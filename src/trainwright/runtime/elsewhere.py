"""``Elsewhere``: a folder or any fsspec URL that checkpoints also go to, and from which a new machine goes on.

Each rank copies its own files; the index goes last, so that present means complete there too.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from trainwright.artifact.checkpoint.index import INDEX, PREFIX, read_index, step_of
from trainwright.artifact.store import sync_directory
from trainwright.core.errors import MachineError, RecipeError, TrainwrightError, in_one_line
from trainwright.core.paths import local_path
from trainwright.core.spelling import did_you_mean

KEY = "train.exec.checkpoint_to"


def place_problem(place: str) -> TrainwrightError | None:
    """Returns what is wrong with a place before anybody goes there.

    A protocol is unknown, needs a package, or is an archive's, out of which no old checkpoint can be deleted.
    """
    if "://" not in place:
        return None
    for part in place.split("::"):
        protocol = part.partition("://")[0]
        try:
            system = fsspec.get_filesystem_class(protocol)
        except ValueError:
            expected = "one that fsspec knows, such as s3, gs, abfs or file"
            fix = did_you_mean(protocol, fsspec.available_protocols())
            return RecipeError("an unknown protocol", where=KEY, seen=repr(place), expected=expected, fix=fix)
        except ImportError as error:
            return MachineError("a package is missing for this place", where=KEY, seen=repr(place), fix=str(error))
        if isinstance(system, type) and issubclass(system, AbstractArchiveFileSystem):
            expected = "a folder, or a place that files are written to and deleted from"
            return RecipeError("an archive takes no checkpoints", where=KEY, seen=repr(place), expected=expected)
    return None


class Elsewhere:
    """The checkpoints of one training at another place, in a folder of the training's own name.

    Raises:
        RecipeError: no such protocol, or its client does not open the place.
        MachineError: the protocol's package is not installed.
    """

    def __init__(self, place: str, out: Path) -> None:
        """Opens the place.

        Args:
            place: a folder or a URL.
            out: the training's folder, whose name says what is trained.
        """
        text = place if "://" in place else str(local_path(place).absolute())
        problem = place_problem(place)
        if problem is not None:
            raise problem
        try:
            self._system, path = fsspec.core.url_to_fs(text)
        except Exception as error:  # each client has errors of its own
            raise RecipeError("cannot open this place", where=KEY, seen=f"{place!r}, {in_one_line(error)}") from error
        self.place = place
        self._root = posixpath.join(path, out.name.removesuffix(".partial"))

    def put(self, folder: Path, name: str, files: Sequence[str]) -> None:
        """Copies files of a folder into the checkpoint of this name.

        Raises:
            MachineError: the place refuses.
        """
        with self._asking():
            self._system.makedirs(self._at(name), exist_ok=True)
            for file in files:
                self._system.put_file(str(folder / file), self._at(name, file))

    def keep(self, names: Sequence[str]) -> None:
        """Deletes all complete checkpoints but these, the index first. Raises as ``put``."""
        with self._asking():
            for name in self._complete():
                if name not in names:
                    self._system.rm_file(self._at(name, INDEX))
                    self._system.rm(self._at(name), recursive=True)

    def fetch(self, root: Path, *, after: int) -> Path | None:
        """Copies the newest complete checkpoint into ``root`` if it is of a later step than ``after``; returns it.

        Raises:
            MachineError: the place refuses.
            DataError: its index is damaged.
        """
        with self._asking():
            names = [name for name in self._complete() if step_of(Path(name)) > after]
            if not names:
                return None
            partial = root / f".{names[-1]}"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self._system.get_file(self._at(names[-1], INDEX), str(partial / INDEX))
            for file in read_index(partial).files:
                self._system.get_file(self._at(names[-1], file), str(partial / file))
        final = root / names[-1]
        shutil.rmtree(final, ignore_errors=True)  # what lies there is not complete
        partial.rename(final)
        sync_directory(root)
        return final

    def _at(self, *names: str) -> str:
        return posixpath.join(self._root, *names)

    def _complete(self) -> list[str]:
        """Returns the names of complete checkpoints, oldest first."""
        self._system.invalidate_cache()
        if not self._system.isdir(self._root):
            return []
        found = (posixpath.basename(path.rstrip("/")) for path in self._system.ls(self._root, detail=False))
        return sorted(name for name in found if name.startswith(PREFIX) and self._system.exists(self._at(name, INDEX)))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except TrainwrightError:
            raise
        except Exception as error:  # each client has errors of its own, which are no OSErrors
            raise MachineError(
                "cannot reach the place where checkpoints go",
                where=KEY,
                seen=f"{self.place}: {in_one_line(error)}",
                fix="mend the place, or leave the key out",
            ) from error
