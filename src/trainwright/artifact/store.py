"""The workspace: content-addressed directories, each complete or absent.

``<workspace>/<stage>-<fingerprint>/`` is an artefact; ``<stage>-<fingerprint>.partial/`` is work under way, kept by an
interruption and taken up by the next run. The manifest is written last, then one rename makes the artefact.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwright import __version__
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.core.records import from_json, to_json
from trainwright.core.spelling import counted
from trainwright.spec.manifest import FORMAT, KINDS, FileEntry, Manifest

MANIFEST = "manifest.json"
CHECKED = ".checked"
"""Folder of a workspace: how the files of each artefact looked when their digests were last right."""
SHORT = 12
"""Hex digits of a fingerprint in a directory's name."""
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EFBIG, errno.ENAMETOOLONG)
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
        """The few numbers a reader wants first."""
        return self.manifest.summary

    def file(self, name: str) -> Path:
        """The path of one of its files.

        Raises:
            DataError: the manifest does not list it.
        """
        if all(entry.path != name for entry in self.manifest.files):
            raise DataError(
                "this {stage} artefact has no file {name!r}", where=self.path, stage=self.manifest.stage, name=name
            )
        return self.path / name

    def verify(self, names: set[str] | None = None) -> None:
        """Read the files again and compare size and digest with the manifest.

        Args:
            names: only these files, or all when None.

        Raises:
            DataError: a file is missing, has another size or another digest; names it.
        """
        for entry in self.manifest.files:
            if names is None or entry.path in names:
                verify_file(self.path, entry)


def directory_digest(path: Path) -> str:
    """sha256 over the names and contents of a directory's files.

    Raises:
        DataError: there is no such directory, or it is empty.
    """
    if not path.is_dir() or not any(path.iterdir()):
        raise DataError("no files here", where=path, expected="a directory with a model in it")
    return digest(sorted((entry.path, entry.sha256) for entry in _entries(path)))


def verify_file(root: Path, entry: FileEntry) -> None:
    """Compare one file with its manifest entry.

    Raises:
        DataError: it is missing, has another size or another digest.
    """
    path = root / entry.path
    fix = f"delete {root} and run the same command to make it again"
    if not path.is_file():
        raise DataError("a file of this artefact is missing", where=path, fix=fix)
    if path.stat().st_size != entry.size_bytes:
        raise DataError(
            "damaged file: its size changed",
            where=path,
            seen=counted(path.stat().st_size, "byte"),
            expected=counted(entry.size_bytes, "byte"),
            fix=fix,
        )
    seen = file_digest(path)
    if seen != entry.sha256:
        raise DataError(
            "damaged file: its sha256 does not match the manifest",
            where=path,
            seen=seen[:SHORT],
            expected=entry.sha256[:SHORT],
            fix=fix,
        )


def open_artifact(path: Path) -> Artifact:
    """The artefact at ``path``.

    Raises:
        DataError: there is no manifest, or it cannot be read.
    """
    source = path / MANIFEST
    if not source.is_file():
        raise DataError("no complete artefact here", where=path, expected=f"a directory with {MANIFEST}")
    try:
        record = json.loads(source.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        fix = f"delete {path} and run the same command to make it again"
        raise DataError("the manifest cannot be read", where=source, seen=str(error), fix=fix) from error
    if isinstance(record, dict):
        record = _in_present_form(record, source)
    return Artifact(path=path, manifest=from_json(Manifest, record, where=str(source)))


def _in_present_form(record: dict[str, Any], source: Path) -> dict[str, Any]:
    """A manifest's record in the present format; format 1 had no kind, which followed from the stage."""
    if record.get("format") == 1 and record.get("stage") in KINDS:
        return record | {"format": FORMAT, "kind": KINDS[record["stage"]]}
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


class Workspace:
    """Where the artefacts of a recipe live.

    Args:
        root: where artefacts are made and looked for.
        above: where they are looked for besides: the workspaces that this one is a child of.
    """

    def __init__(self, root: Path, *, above: tuple[Path, ...] = ()) -> None:
        self.root, self.above = root, above

    def path(self, stage: str, fingerprint: str) -> Path:
        """Where that artefact is or will be."""
        return self.root / f"{stage}-{fingerprint[:SHORT]}"

    def find(self, stage: str, fingerprint: str) -> Artifact | None:
        """The complete artefact of that fingerprint, or None."""
        for root in (self.root, *self.above):
            path = root / self.path(stage, fingerprint).name
            if (path / MANIFEST).is_file():
                artifact = open_artifact(path)
                if artifact.manifest.fingerprint == fingerprint:
                    return artifact
        return None

    def draft(self, stage: str, fingerprint: str) -> Path:
        """The directory of work under way, made where it is absent.

        Raises:
            MachineError: it cannot be written.
        """
        path = self.path(stage, fingerprint)
        partial = path.with_name(path.name + ".partial")
        with writing(partial):
            partial.mkdir(parents=True, exist_ok=True)
        return partial

    @contextmanager
    def lock(self, stage: str, fingerprint: str) -> Iterator[None]:
        """Hold the right to work on one artefact.

        Raises:
            MachineError: another process holds it.
        """
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            stream = (self.root / f".{stage}-{fingerprint[:SHORT]}.lock").open("w")
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise MachineError(
                    "another process is working on {stage}",
                    where=self.path(stage, fingerprint),
                    fix="wait for it, or stop it first",
                    stage=stage,
                ) from error
            yield

    def commit(self, partial: Path, manifest: Manifest) -> Artifact:
        """Turn finished work into an artefact: digest the files, write the manifest, rename.

        Files whose names start with a dot are left out and deleted. ``manifest.files`` is filled here.
        """
        for hidden in partial.glob(".*"):
            shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
        files = tuple(sorted(_entries(partial), key=lambda entry: entry.path))
        record = to_json(manifest) | {"files": [to_json(entry) for entry in files]}
        with writing(partial):
            write_atomically(partial / MANIFEST, json.dumps(record, indent=1, ensure_ascii=False).encode() + b"\n")
        final = partial.with_name(partial.name.removesuffix(".partial"))
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        _sync_directory(final.parent)
        artifact = open_artifact(final)
        self._note(artifact)
        return artifact

    def check(self, artifact: Artifact) -> None:
        """Make sure that an artefact which is handed out again is what its manifest says.

        Sizes are compared always, digests of those files whose size, time or inode is not what it was when they were
        last compared: a run in which all is there reads no gigabytes, and a byte that somebody changed is found.

        Raises:
            DataError: a file is missing or damaged; names it.
        """
        known = self._noted(artifact)
        changed = set()
        for entry in artifact.manifest.files:
            stamp = _stamp(artifact.path / entry.path)
            if stamp is None or stamp[0] != entry.size_bytes or stamp != known.get(entry.path):
                changed.add(entry.path)
        if changed:
            artifact.verify(changed)
            self._note(artifact)

    def _notes(self, artifact: Artifact) -> Path:
        return artifact.path.parent / CHECKED / f"{artifact.path.name}.json"

    def _noted(self, artifact: Artifact) -> dict[str, list[int]]:
        try:
            record = json.loads(self._notes(artifact).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _note(self, artifact: Artifact) -> None:
        """Remember how the files of an artefact look whose digests are right; beside it, for it may be read-only."""
        notes = self._notes(artifact)
        if not writable(notes):
            return
        stamps = {entry.path: _stamp(artifact.path / entry.path) for entry in artifact.manifest.files}
        with writing(notes):
            notes.parent.mkdir(exist_ok=True)
            write_atomically(notes, json.dumps(stamps).encode())


def _stamp(path: Path) -> list[int] | None:
    """Size, time of the last write and of the last change of its facts, and inode; None where there is no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def writable(path: Path) -> bool:
    """Whether something may be written at a path, which may not exist yet."""
    return os.access(next(each for each in (path, *path.absolute().parents) if each.exists()), os.W_OK)


def _entries(root: Path) -> Iterator[FileEntry]:
    for path in root.rglob("*"):
        if path.is_file() and path != root / MANIFEST:
            name = path.relative_to(root).as_posix()
            yield FileEntry(path=name, size_bytes=path.stat().st_size, sha256=file_digest(path))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a half."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(where: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write into one clear line.

    Raises:
        MachineError: no space, no permission, a read-only file system, or no folder can be (or is any more) below
            ``where``.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "free some space and run the same command: finished parts are kept"
            raise MachineError("the disk is full", where=error.filename or where, fix=fix) from error
        # What is read inside may be missing for other reasons: those errors belong to who reads.
        gone = error.errno == errno.ENOENT and Path(error.filename or "").is_relative_to(where)
        if error.errno in _REFUSALS or gone:
            fix = "choose another place with --workspace"
            raise MachineError(
                "cannot write: {strerror}", where=error.filename or where, fix=fix, strerror=error.strerror
            ) from error
        raise
