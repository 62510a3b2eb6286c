"""Which files a corpus consists of, and which ones are left out for a reason.

Names are relative to what the recipe points at, so that the same corpus in another place is the same corpus. Local
paths never touch fsspec, and nothing here imports numpy, pyarrow or torch: the pipeline asks before it knows whether
there is work to do.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError, RecipeError
from trainwright.core.paths import local_path
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.entries import CorpusFile, RawDocument, SkippedFile
from trainwright.stages.data.corpus.remote import is_url, remote_entries
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.base import Source

MAGIC = re.compile(r"[*?\[]")
_SPECIAL = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFDIR: "link to a directory",
}
_REFUSALS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "loop of links",
    errno.EIO: "input/output error",
}
"""Errors that are about one file. Any other, such as too many open files, is about this machine and ends the run."""


Entry = CorpusFile | SkippedFile


def list_files(section: DataSection) -> tuple[Entry, ...]:
    """Returns every file that the sources name, in the corpus's order, without opening any.

    Raises:
        DataError: a path is missing or no file, or a pattern matches nothing.
        RecipeError: a path is empty, or names the home of an unknown user.
    """
    entries: list[Entry] = []
    for number, source in enumerate(section.sources):
        entries += sorted(source_entries(number, source), key=lambda entry: (entry.name, entry.location))
    return tuple(entries)


def source_entries(number: int, section: SourceSection) -> Iterator[Entry]:
    """Yields the files of source ``number`` as they are found; raises as ``list_files``."""
    source = source_of(section)
    for order, path in enumerate(source.paths):
        place = _place(number, order, source)
        entries = _remote(path, place) if is_url(path) else _local(path, place)
        empty = True
        for entry in entries:
            empty = False
            # Two paths of one source may hold equal names: the path's number keeps them apart and in order.
            yield entry if len(source.paths) == 1 else replace(entry, name=f"{order}/{entry.name}")
        if empty:
            raise _nothing_matches(path, place)


def path_problem(number: int, order: int, source: Source[Any]) -> DataError | RecipeError | None:
    """Returns what is wrong with one path of a source, its key as the place; looks no further than the first file.

    A URL is not looked at: that would need the network.
    """
    path = source.paths[order]
    place = _place(number, order, source)
    if is_url(path):
        return None
    try:
        if next(_local(path, place), None) is not None:
            return None
        error: DataError | RecipeError = _nothing_matches(path, place)
    except (DataError, RecipeError) as problem:
        error = problem
    return error.at(place.key, seen=error.seen or path).with_fix(None)  # the place says what to check


def unreadable(where: str, error: OSError) -> DataError:
    """Returns the error for a file that is there but cannot be read."""
    return DataError(
        "cannot read this file", where=where, seen=error.strerror or repr(error), fix="check its permissions"
    )


def not_skipped(file: SkippedFile) -> DataError:
    """Returns the error for a file that would be skipped where ``strict`` lets none be."""
    return DataError(
        "cannot read this file: {reason}",
        where=file.location,
        fix="mend or remove it, or set data.strict: false to count and skip such files",
        reason=file.reason,
    )


def not_a_document(file: CorpusFile, document: RawDocument) -> DataError:
    """Returns the error for a record that is no document where ``strict`` lets none be."""
    return DataError(
        "broken record: {problem}",
        where=file.location + document.position,
        fix="mend it, or set data.strict: false to count and skip such records",
        problem=document.problem,
    )


def refusal(error: OSError) -> str | None:
    """Returns the reason to skip one file, or None where the error is not about that file alone."""
    return _REFUSALS.get(error.errno or 0)


def special_kind(mode: int) -> str | None:
    """Returns what a file is that holds no bytes to read, or None for a regular file."""
    return _SPECIAL.get(stat.S_IFMT(mode))


def stat_version(facts: os.stat_result) -> str:
    """Returns a text that differs after every write: ctime cannot be set back as mtime can."""
    return f"{facts.st_size}-{facts.st_mtime_ns}-{facts.st_ctime_ns}-{facts.st_dev}-{facts.st_ino}"


def taken_names(source: Source[Any], names: Iterable[str]) -> list[str]:
    """Returns those of some files' names that a source takes from a directory."""
    return [name for name in names if _takes(source.patterns, name)]


def _takes(patterns: Iterable[str], name: str) -> bool:
    return not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns)


# ------------------------------------------------------------------------------------------------------------- listing
@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where the recipe names a path (source number and key), and what its source takes from directories."""

    number: int
    key: str
    patterns: tuple[str, ...]
    ignored_folders: frozenset[str]

    def takes(self, name: str) -> bool:
        return _takes(self.patterns, name)


def _place(number: int, order: int, source: Source[Any]) -> _Place:
    key = f"data.sources.{number}.paths.{order}"
    return _Place(number=number, key=key, patterns=source.patterns, ignored_folders=source.ignored_folders)


def _nothing_matches(path: str, place: _Place) -> DataError:
    expected = "at least one file" if place.patterns == ("*",) else f"files named {', '.join(place.patterns)}"
    return DataError("no file matches", where=path, expected=expected, fix=f"check {place.key}")


def _local(text: str, place: _Place) -> Iterator[Entry]:
    if not text:  # Path takes it for the current directory
        raise RecipeError("an empty path", where=place.key, seen=repr(text), expected="a file, directory, glob or URL")
    path = local_path(text)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if not MAGIC.search(text):
            what = "a dangling link" if path.is_symlink() else "no such file or directory"
            raise DataError(what, where=text, fix=f"check {place.key}") from error
        fixed = _fixed_part(path)
        refused: list[OSError] = []
        for match in sorted(_matches(str(path), refused)):
            if not Path(match).is_dir():
                yield _file(place.number, Path(match), fixed)
        for refused_folder in refused:
            yield _skipped_folder(place.number, refused_folder, fixed)
        return
    except OSError as error:
        raise unreadable(text, error) from error
    except ValueError as error:  # a NUL byte
        raise DataError("not a path", where=place.key, seen=repr(text)) from error
    if stat.S_ISDIR(mode):
        yield from _tree(path, place)
    elif special_kind(mode) is not None:
        raise DataError(
            "a {mode}", where=text, expected="a file or directory", fix=f"check {place.key}", mode=special_kind(mode)
        )
    else:
        yield _file(place.number, path, path.parent)


def _fixed_part(path: Path) -> Path:
    """Returns the leading folders of a pattern that hold no pattern themselves."""
    parts = path.parts[:-1]
    fixed = next((depth for depth, part in enumerate(parts) if MAGIC.search(part)), len(parts))
    return Path(*parts[:fixed])


def _matches(pattern: str, refused: list[OSError]) -> set[str]:
    """As ``glob.glob``, but ``**`` enters each directory once, however many links lead back to it.

    Directories below ``**`` that cannot be listed go to ``refused``.
    """
    parts = Path(pattern).parts
    if "**" not in parts:
        return set(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern
    depth = parts.index("**")
    rest = str(Path(*(parts[depth + 1 :] or ("*",))))
    matches: set[str] = set()
    for start in glob.glob(str(Path(*parts[:depth]))) if depth else ["."]:  # noqa: PTH207
        for folder in _folders_below(start, refused):
            matches |= _matches(str(Path(glob.escape(folder), rest)), refused)
    return matches


def _folders_below(start: str, refused: list[OSError]) -> Iterator[str]:
    seen: set[tuple[int, int]] = set()
    for folder, folders, _ in os.walk(start, followlinks=True, onerror=refused.append):
        facts = Path(folder).stat()
        if (facts.st_dev, facts.st_ino) in seen:
            folders.clear()
            continue
        seen.add((facts.st_dev, facts.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield folder


def _tree(root: Path, place: _Place) -> Iterator[Entry]:
    refused: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=refused.append):
        folders[:] = [name for name in folders if name not in place.ignored_folders and not name.startswith(".")]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in names:
            if place.takes(name):
                yield _file(place.number, Path(folder, name), root)
        for name in links:  # os.walk does not enter them
            yield _file(place.number, Path(folder, name), root)
    for error in refused:
        yield _skipped_folder(place.number, error, root)


def _skipped_folder(number: int, error: OSError, root: Path) -> SkippedFile:
    folder, reason = Path(error.filename), refusal(error)
    if reason is None or folder == root:
        raise DataError("cannot list this directory", where=folder, seen=error.strerror) from error
    name = _shown(folder, root) + "/"
    return SkippedFile(source=number, name=name, location=str(folder), reason=f"directory: {reason}")


def _file(number: int, path: Path, root: Path) -> Entry:
    name, location = _shown(path, root), str(path.absolute())
    try:
        facts = path.stat()
    except OSError as error:
        reason = "dangling link" if isinstance(error, FileNotFoundError) else refusal(error)
        if reason is None:
            raise unreadable(str(path), error) from error
        return SkippedFile(source=number, name=name, location=location, reason=reason)
    special = special_kind(facts.st_mode)
    if special is not None:
        return SkippedFile(source=number, name=name, location=location, reason=special)
    return CorpusFile(
        source=number, name=name, location=location, size_bytes=facts.st_size, version=stat_version(facts)
    )


def _shown(path: Path, root: Path) -> str:
    """Returns the relative path as text; bytes that are no text (a name on Linux can be any bytes) become escapes."""
    return path.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()


def _remote(url: str, place: _Place) -> Iterator[Entry]:
    try:
        for name, location, size_bytes, version in remote_entries(url, MAGIC, place.takes):
            yield CorpusFile(source=place.number, name=name, location=location, size_bytes=size_bytes, version=version)
    except FileNotFoundError as error:
        raise DataError("no such file or directory", where=url, fix=f"check {place.key}") from error
    except OSError as error:
        raise unreadable(url, error) from error
