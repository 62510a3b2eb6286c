"""``Elsewhere``: a folder or any fsspec URL that checkpoints also go to, and from which a new machine goes on.

Each rank copies its share of the files; the index goes last, so that present means complete there too. ``Mirror`` keeps
what is here and what is there the same: what the place refuses ends no training, and is tried again.
"""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from trainwright.artifact.checkpoint.index import INDEX, PREFIX, folder_of, read_index, step_of
from trainwright.artifact.store import sync_directory, writable
from trainwright.core.errors import DataError, MachineError, RecipeError, TrainwrightError, in_one_line
from trainwright.core.paths import local_path
from trainwright.core.spelling import did_you_mean

KEY = "train.exec.checkpoint_to"
FIX = "mend the place, or leave the key out"
BestOf = Callable[[Mapping[int, float]], list[int]]
"""The steps of the best, of the metric of each step where it was measured."""
Best = tuple[str, BestOf]
"""A metric, and which steps are the best by it."""
Exchange = Callable[[Any], list[Any]]
"""Gives a value to all ranks and returns theirs, by number."""


def place_problem(place: str) -> TrainwrightError | None:
    """Returns what is wrong with a place before anybody goes there.

    A folder cannot be where it is named. A protocol is unknown, needs a package, or is an archive's, out of which no
    old checkpoint can be deleted.
    """
    if "://" not in place:
        return _folder_problem(local_path(place).absolute())
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


def _folder_problem(folder: Path) -> MachineError | None:
    """Returns why nothing can be written to a folder; what only writing shows, ``Elsewhere.probe`` finds."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if nearest.is_dir() and writable(folder):
        return None
    seen = f"{nearest} may not be written to" if nearest.is_dir() else f"{nearest} is a file"
    return MachineError("checkpoints cannot go to this folder", where=KEY, seen=seen, fix=FIX)


class Elsewhere:
    """The checkpoints of one training at another place, in a folder of the training's own name.

    Raises:
        RecipeError: no such protocol, or its client does not open the place.
        MachineError: the protocol's package is not installed, or a folder cannot be there.
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

    def probe(self) -> None:
        """Writes a file of a few bytes and deletes it.

        Raises:
            MachineError: the place refuses one of the two.
        """
        path = self._at(f".probe-{uuid4().hex}")
        with self._asking():
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(path, b"may be deleted")
            self._system.rm_file(path)

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
        """Deletes all checkpoints but these, half copied ones too, the index first. Raises as ``put``."""
        with self._asking():
            for name in self._present():
                if name in names:
                    continue
                if self._system.exists(self._at(name, INDEX)):
                    self._system.rm_file(self._at(name, INDEX))
                self._system.rm(self._at(name), recursive=True)

    def complete(self) -> list[str]:
        """Returns the names of complete checkpoints, oldest first. Raises as ``put``."""
        with self._asking():
            return self._complete()

    def withdraw(self, name: str) -> None:
        """Deletes the index of a complete checkpoint, which is none from then on. Raises as ``put``."""
        with self._asking():
            self._system.rm_file(self._at(name, INDEX))

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
            return self._copied(names[-1], root)

    def fetch_best(self, root: Path, metric: str, best_of: BestOf) -> list[Path]:
        """Copies those complete checkpoints into ``root`` that it lacks and that are the best ones; returns them.

        Args:
            root: where checkpoints are here.
            metric: by which they are measured.
            best_of: which steps are wanted.

        Raises:
            MachineError: the place refuses.
            DataError: an index is damaged.
        """
        with self._asking(), tempfile.TemporaryDirectory() as folder:
            values = {}
            for name in self._complete():
                self._system.get_file(self._at(name, INDEX), str(Path(folder, INDEX)))
                if (value := read_index(Path(folder)).metrics.get(metric)) is not None:
                    values[step_of(Path(name))] = value
            names = map(folder_of, best_of(values))
            return [self._copied(name, root) for name in names if not (root / name / INDEX).is_file()]

    def _copied(self, name: str, root: Path) -> Path:
        """Copies a complete checkpoint; it is in ``root`` whole or not at all."""
        half, final = root / f".{name}", root / name
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        self._system.get_file(self._at(name, INDEX), str(half / INDEX))
        for file in read_index(half).files:
            self._system.get_file(self._at(name, file), str(half / file))
        shutil.rmtree(final, ignore_errors=True)  # what lies there is not complete
        half.rename(final)
        sync_directory(root)
        return final

    def _at(self, *names: str) -> str:
        return posixpath.join(self._root, *names)

    def _complete(self) -> list[str]:
        """Returns the names of complete checkpoints, oldest first."""
        return [name for name in self._present() if self._system.exists(self._at(name, INDEX))]

    def _present(self) -> list[str]:
        """Returns the names of all checkpoints of which anything is there, oldest first."""
        self._system.invalidate_cache()
        if not self._system.isdir(self._root):
            return []
        found = (posixpath.basename(path.rstrip("/")) for path in self._system.ls(self._root, detail=False))
        return sorted(name for name in found if name.startswith(PREFIX))

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
                fix=FIX,
            ) from error


class Mirror:
    """The complete checkpoints of a training's folder, at another place too; all ranks must call a method together.

    What the place refuses is no error here: it is remembered, and copied with the next checkpoint that goes there.

    Attributes:
        place: where to.
        current: whether the last copy left nothing out; before the first one nobody knows.
        refusal: why the last copy failed, if it did.
        said: what a person should hear of, oldest first; whoever tells it takes it out.
    """

    def __init__(self, place: Elsewhere, root: Path, *, rank: int, ranks: int) -> None:
        """Copies nothing yet.

        Args:
            place: where to.
            root: the folder with checkpoints, which all ranks see.
            rank: of this process.
            ranks: processes that copy together.
        """
        self.place, self._root = place, root
        self._rank, self._ranks = rank, ranks
        self._owed: set[str] = set()
        self.current = False
        self.refusal: MachineError | None = None
        self.said: list[str] = []

    def probe(self, exchange: Exchange) -> None:
        """Tries the place from every rank.

        Raises:
            MachineError: one of them cannot write there; all raise it.
        """
        self._together(self.place.probe, exchange)

    def bring(self, kept: Sequence[str], exchange: Exchange, *, fresh: str | None = None) -> None:
        """Copies what is kept here and not there, and deletes there what is not kept.

        Args:
            kept: names of complete checkpoints; the first rank's hold.
            exchange: between the ranks.
            fresh: one of them, just written: whatever lies there under its name is another one.
        """
        owed = self._owed | ({fresh} if fresh else set())
        try:
            lead = self._rank == 0
            missing: Mapping[str, list[str]] = self._together(
                lambda: self._missing(kept, owed) if lead else None, exchange
            )[0]
            for name, files in missing.items():
                put = partial(self.place.put, self._root / name, name)
                self._together(partial(put, files[self._rank :: self._ranks]), exchange)
                self._together(partial(put, [INDEX] if lead else []), exchange)
            self._together(lambda: self.place.keep(kept) if lead else None, exchange)
        except MachineError as error:
            self._owed, self.current, self.refusal = owed, False, error
            self.said.append(f"checkpoints could not be copied, which is tried again with the next one: {error}")
            return
        if self.refusal is not None:
            self.said.append(f"checkpoints are copied to {self.place.place} again: none is missing there")
        self._owed, self.current, self.refusal = set(), True, None

    def keep(self, names: Sequence[str]) -> None:
        """Deletes there all but these, by this rank alone. Raises as ``Elsewhere.keep``."""
        self.place.keep(names)

    def fetch(self, *, after: int, best: Best | None) -> list[Path]:
        """Copies a newer checkpoint from there, and the best ones that are not here, by this rank alone; returns them.

        Args:
            after: the last step that is here.
            best: as ``Elsewhere.fetch_best`` takes it; None: only the newest is wanted.

        Raises:
            MachineError: the place refuses.
            DataError: an index is damaged.
        """
        newest = self.place.fetch(self._root, after=after)
        # Though nothing is newer there: a start that ended between the two has the newest one alone.
        others = [] if best is None else self.place.fetch_best(self._root, *best)
        return others if newest is None else [newest, *others]

    def _missing(self, kept: Sequence[str], owed: set[str]) -> dict[str, list[str]]:
        """Returns the files of each checkpoint to copy, the newest first; what is there of it is complete no more."""
        there = set(self.place.complete())
        missing = {}
        for name in sorted(kept, reverse=True):
            if name in there and name not in owed:
                continue
            try:
                files = sorted(read_index(self._root / name).files)
            except DataError:
                continue  # a damaged one helps nobody there; whoever reads it here names it
            if name in there:
                self.place.withdraw(name)
            missing[name] = files
        return missing

    def _together(self, work: Callable[[], Any], exchange: Exchange) -> list[Any]:
        """Returns what came of the work on each rank, or raises what the first of them met."""
        try:
            told = work()
        except MachineError as error:
            told = error
        results = exchange(told)
        for each in results:
            if isinstance(each, MachineError):
                raise each
        return results
