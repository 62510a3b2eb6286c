"""Artefacts: complete directories whose manifest lists every file; and writes of which a kill leaves no half."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO

from trainwright import __version__
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.core.records import from_json, to_json
from trainwright.core.spelling import counted
from trainwright.spec.manifest import FORMAT, KINDS, FileEntry, Manifest

MANIFEST = "manifest.json"
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)
"""How it says that a file is where a folder should be: below the file, and in its place."""
_GONE = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)
"""What a network file system says whose server is lost."""
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG, *_NO_FOLDER)
"""How an operating system says that nothing can be written at a place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A complete directory and what its manifest says."""

    path: Path
    manifest: Manifest

    def digest(self, patterns: tuple[str, ...] = ("*",)) -> str:
        """sha256 over the digests of the files that match: equal content, equal digest, however it was made."""
        chosen = (entry for entry in self.manifest.files if any(fnmatch(entry.path, pattern) for pattern in patterns))
        return digest([(entry.path, entry.sha256) for entry in chosen])

    @property
    def summary(self) -> Mapping[str, Any]:
        """Returns the few numbers a reader wants first."""
        return self.manifest.summary

    def file(self, name: str) -> Path:
        """Returns the path of one of its files.

        Raises:
            DataError: the manifest does not list it.
        """
        if all(entry.path != name for entry in self.manifest.files):
            raise DataError(
                "this {stage} artefact has no file {name!r}", where=self.path, stage=self.manifest.stage, name=name
            )
        return self.path / name

    def verify(self, names: Collection[str] | None = None) -> None:
        """Read the files again and compare size and digest with the manifest.

        Args:
            names: only these files, or all when None.

        Raises:
            DataError: a file is missing, has another size or another digest; names it.
        """
        for entry in self.manifest.files:
            if names is None or entry.path in names:
                verify_file(self.path, entry)


def verify_file(root: Path, entry: FileEntry) -> None:
    """Compare one file with its manifest entry.

    Raises:
        DataError: it is missing, has another size or another digest.
    """
    path = root / entry.path
    fix = _remake(root)
    if not path.is_file():
        raise missing_file(root, entry.path)
    if path.stat().st_size != entry.size_bytes:
        seen, expected = (counted(size_bytes, "byte") for size_bytes in (path.stat().st_size, entry.size_bytes))
        raise DataError("damaged file: its size changed", where=path, seen=seen, expected=expected, fix=fix)
    seen, expected = file_digest(path), entry.sha256
    if seen != expected:
        raise DataError(
            "damaged file: its sha256 does not match the manifest", where=path, seen=seen, expected=expected, fix=fix
        )


def missing_file(root: Path, name: str) -> DataError:
    """Returns the error of a file that an artefact should have."""
    return DataError("a file of this artefact is missing", where=root / name, fix=_remake(root))


def open_artifact(path: Path) -> Artifact:
    """Returns the artefact at ``path``.

    Raises:
        DataError: there is no manifest, it is damaged, or it is of another format.
    """
    source = path / MANIFEST
    if not source.is_file():
        raise DataError("no complete artefact here", where=path, expected=f"a directory with {MANIFEST}")
    data = source.read_bytes()
    try:
        record = json.loads(data)
    except ValueError as error:
        raise DataError("the manifest cannot be read", where=source, seen=str(error), fix=_remake(path)) from error
    if isinstance(record, dict):
        _check_own_digest(record, data, source)
        record = _in_present_form(record, source)
    return Artifact(path=path, manifest=from_json(Manifest, record, where=str(source)))


def manifest_bytes(manifest: Manifest) -> bytes:
    """Returns a manifest's file: JSON whose second line says the sha256 of all other lines."""
    text = json.dumps(to_json(manifest), indent=1, ensure_ascii=False).encode() + b"\n"
    opening = text.index(b"\n") + 1
    return text[:opening] + _digest_line(hashlib.sha256(text).hexdigest()) + text[opening:]


def _digest_line(sha256: object) -> bytes:
    return f' "sha256": "{sha256}",\n'.encode()


def _check_own_digest(record: dict[str, Any], data: bytes, source: Path) -> None:
    """Takes the digest of its own out of a manifest's record; before format 3 there is none.

    Raises:
        DataError: the other bytes have another one.
    """
    if "sha256" not in record and record.get("format") != FORMAT:
        return
    expected = record.pop("sha256", "a second line with it")
    seen = hashlib.sha256(data.replace(_digest_line(expected), b"", 1)).hexdigest()
    if seen != expected:
        raise DataError(
            "damaged manifest: its own sha256 does not match",
            where=source,
            seen=seen,
            expected=expected,
            fix=_remake(source.parent),
        )


def _remake(root: Path) -> str:
    return f"delete {root} and run the same command to make it again"


def _in_present_form(record: dict[str, Any], source: Path) -> dict[str, Any]:
    """Returns a manifest's record in the present format; format 1 had no kind, which followed from the stage."""
    if record.get("format") in (1, 2):
        return {"kind": KINDS.get(str(record.get("stage")))} | record | {"format": FORMAT}
    if record.get("format") != FORMAT:
        execution = record.get("execution")
        writer = execution.get("trainwright") if isinstance(execution, dict) else None
        raise DataError(
            "this artefact was written in another format",
            where=source,
            seen=f"format {record.get('format')}, by trainwright {writer or 'of an unknown version'}",
            expected=f"format 1 to {FORMAT}, as trainwright {__version__} reads",
            fix="open it with the version that wrote it, or delete it and make it again with this one",
        )
    return record


def writable(path: Path) -> bool:
    """Returns whether something may be written at a path, which may not exist yet."""
    return os.access(next(each for each in (path, *path.absolute().parents) if each.exists()), os.W_OK)


def write_atomically(path: Path, *chunks: bytes | memoryview) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a half; several writers wait for each other.

    What a killed writer leaves has one name, with a dot before it, and the next writer of this file takes it.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with _held(temporary) as stream, ExitStack() as unfinished:
            unfinished.callback(temporary.unlink, missing_ok=True)
            stream.truncate(0)
            stream.writelines(chunks)
            stream.flush()
            os.fsync(stream.fileno())
            temporary.replace(path)
            unfinished.pop_all()  # from now on the name may be another writer's
    except OSError as error:
        error.filename = str(path)  # a full disk names no file
        raise
    sync_directory(path.parent)


def _held(path: Path) -> BinaryIO:
    """Opens a file that no other writer holds; a process that ends, however it ends, holds it no more."""
    while True:
        stream = path.open("ab")
        fcntl.flock(stream, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
        stream.close()  # whoever held it has renamed or deleted it meanwhile


def sync_directory(path: Path) -> None:
    """Waits until the disk has what was renamed in a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_full(where: object) -> MachineError:
    """Returns the error to raise where there is no space left for a file."""
    fix = "free some space and run the same command: finished parts are kept"
    return MachineError("the disk is full", where=where, fix=fix)


@contextmanager
def writing(where: Path, *, field: str = "workspace") -> Iterator[None]:
    """Turn the operating system's refusals to write into one clear line.

    Args:
        where: what is written, or the folder that it is written to.
        field: what the caller sets to have it written elsewhere.

    Raises:
        MachineError: no space, no permission, a read-only file system, or no folder can be (or is any more) below
            ``where``.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(error.filename or where) from error
        if error.errno in _GONE:
            fix = "mount it again and run the same command: finished parts are kept"
            where = error.filename or where
            raise MachineError(
                "the file system is gone: {reason}", where=where, fix=fix, reason=error.strerror
            ) from error
        # What is read inside may be missing for other reasons: those errors belong to who reads.
        gone = error.errno == errno.ENOENT and Path(os.fsdecode(error.filename or "")).is_relative_to(where)
        if error.errno in _REFUSALS or gone:
            raise MachineError(
                "cannot write: {reason}",
                where=error.filename or where,
                field=field,
                fix=f"choose another place with `{field}`",
                reason="a file is where a folder should be" if error.errno in _NO_FOLDER else error.strerror,
            ) from error
        raise
