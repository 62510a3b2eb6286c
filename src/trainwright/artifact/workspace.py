"""The workspace: content-addressed directories, each complete or absent.

``<workspace>/<stage>-<fingerprint>/`` is an artefact; ``<stage>-<fingerprint>.partial/`` is work under way, kept by an
interruption and taken up by the next run. The manifest is written last, then one rename makes the artefact.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainwright.artifact.store import (
    MANIFEST,
    Artifact,
    manifest_bytes,
    missing_file,
    open_artifact,
    sync_directory,
    writable,
    write_atomically,
    writing,
)
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.spec.manifest import FileEntry, Manifest

SHORT = 12
"""Hex digits of a fingerprint in a directory's name."""
CHECKED = ".checked"
"""Folder of a workspace: how the files of each artefact looked when their digests were last right."""


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
        """Returns the complete artefact of that fingerprint, or None.

        Raises:
            DataError: it is there without a manifest, as an interrupted copy leaves it, with a damaged one or with
                that of another artefact.
        """
        for root in (self.root, *self.above):
            path = root / self.path(stage, fingerprint).name
            if path.exists():
                if not (path / MANIFEST).is_file():
                    raise missing_file(path, MANIFEST)
                artifact = open_artifact(path)
                seen = artifact.manifest.fingerprint
                if seen != fingerprint:
                    fix = "move or delete this directory, and run again"
                    raise DataError("this is another artefact", where=path, seen=seen, expected=fingerprint, fix=fix)
                return artifact
        return None

    def draft(self, stage: str, fingerprint: str) -> Path:
        """Returns the directory of work under way, made where it is absent.

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
            MachineError: another process holds it, or it cannot be written.
        """
        path = self.root / f".{stage}-{fingerprint[:SHORT]}.lock"
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            stream = path.open("a+")
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                stream.seek(0)
                raise MachineError(
                    "another process is working on {stage}",
                    where=self.path(stage, fingerprint),
                    seen=stream.read() or None,
                    fix="wait for it, or stop it first",
                    stage=stage,
                ) from error
            with writing(path):
                stream.truncate(0)
                os.write(stream.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
            yield

    def commit(self, partial: Path, manifest: Manifest) -> Artifact:
        """Turn finished work into an artefact: digest the files, write the manifest, rename.

        Files and folders whose names start with a dot, at any depth, are left out and deleted: what a killed process
        left is among them. ``manifest.files`` is filled here.
        """
        for hidden in sorted(partial.rglob(".*"), reverse=True):  # what is in a folder comes before it
            shutil.rmtree(hidden) if hidden.is_dir() and not hidden.is_symlink() else hidden.unlink()
        files = tuple(sorted(_entries(partial), key=lambda entry: entry.path))
        with writing(partial):
            write_atomically(partial / MANIFEST, manifest_bytes(replace(manifest, files=files)))
        final = partial.with_name(partial.name.removesuffix(".partial"))
        partial.rename(final)
        sync_directory(final.parent)
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


def directory_digest(path: Path) -> str:
    """sha256 over the names and contents of a directory's files.

    Raises:
        DataError: there is no such directory, or it is empty.
    """
    if not path.is_dir() or not any(path.iterdir()):
        raise DataError("no files here", where=path, expected="a directory with a model in it")
    return digest(sorted((entry.path, entry.sha256) for entry in _entries(path)))


def _entries(root: Path) -> Iterator[FileEntry]:
    for path in root.rglob("*"):
        if path.is_file() and path != root / MANIFEST:
            name = path.relative_to(root).as_posix()
            yield FileEntry(path=name, size_bytes=path.stat().st_size, sha256=file_digest(path))
