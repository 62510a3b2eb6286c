"""Writes a checkpoint beside training: every rank its pieces, then the first one the index, then it gets its name."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.artifact.checkpoint.index import (
    INDEX,
    MODEL,
    OPTIMIZER,
    Index,
    IndexedFile,
    IndexedTensor,
    Piece,
    index_bytes,
)
from trainwright.artifact.checkpoint.tensor_file import write_tensors
from trainwright.artifact.store import sync_directory, write_atomically, writing
from trainwright.core.errors import MachineError, TrainwrightError, in_one_line
from trainwright.core.fingerprint import file_digest
from trainwright.stages.train.saving.pieces import Claim, Copied

if TYPE_CHECKING:
    from trainwright.stages.train.saving.elsewhere import Mirror

Exchange = Callable[[Any], list[Any]]
"""Gives a value to all ranks and returns theirs, by number."""


@dataclass(frozen=True, slots=True)
class _Written:
    files: dict[str, IndexedFile]
    pieces: list[tuple[Claim, Piece]]


class Writing:
    """A checkpoint that a thread writes."""

    def __init__(self, work: Callable[[], Path]) -> None:
        self._work = work
        self._begun_s = time.monotonic()
        self._outcome: Path | BaseException | None = None
        self.seconds = 0.0
        # As a daemon it ends with the process: a second Ctrl-C waits for no disk.
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> Path:
        """Returns the folder once it is complete.

        Raises:
            MachineError: it could not be written.
            BaseException: what else ended the thread.
        """
        self.join()
        if not isinstance(self._outcome, Path):
            raise self._outcome or RuntimeError("the thread that writes checkpoints died")
        return self._outcome

    def join(self) -> None:
        """Waits until it is written, or is not."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._outcome = self._work()
        except BaseException as error:  # noqa: BLE001  # whoever waits raises it
            self._outcome = error
        self.seconds = time.monotonic() - self._begun_s


@dataclass(frozen=True, kw_only=True)
class Save:
    """One checkpoint to write.

    Attributes:
        final: the folder that it becomes.
        rank: of this process.
        index: all but files and tensors.
        copies: this rank's pieces.
        exchange: between the ranks' threads.
        small: what the first rank writes of small files, into a folder.
        complete: what the first rank does once the folder is complete.
        elsewhere: another place that it goes to.
    """

    final: Path
    rank: int
    index: Index
    copies: Sequence[Copied]
    exchange: Exchange
    small: Callable[[Path], None]
    complete: Callable[[], list[Path]]
    elsewhere: Mirror | None

    def run(self) -> Path:
        """Writes it with the other ranks; once it is complete here, it is copied elsewhere, or is not.

        Raises:
            MachineError: a rank could not write; all ranks raise it.
        """
        folder: Path = self._all(lambda: _new_folder(self.final) if self.rank == 0 else None)[0]
        written: list[_Written] = self._all(lambda: self._pieces(folder))
        kept = self._all(lambda: self._finish(folder, written) if self.rank == 0 else None)[0]
        if self.elsewhere is not None:
            self.elsewhere.bring(kept, self.exchange, fresh=self.final.name)
        return self.final

    def _all(self, work: Callable[[], Any]) -> list[Any]:
        """Returns what came of the work on each rank, or raises what one of them raised.

        The others are told of every failure, for they wait for this rank's word; a defect is raised as it is here.
        """
        try:
            with writing(self.final.parent):
                told = work()
        except TrainwrightError as error:
            told = error
        except OSError as error:
            told = MachineError("cannot write the checkpoint", where=self.final, seen=in_one_line(error))
        except BaseException as error:
            self.exchange(
                MachineError(
                    "rank {rank} failed while it wrote the checkpoint",
                    where=self.final,
                    seen=in_one_line(error),
                    rank=self.rank,
                )
            )
            raise
        results = self.exchange(told)
        for each in results:
            if isinstance(each, TrainwrightError):
                raise each
        return results

    def _pieces(self, folder: Path) -> _Written:
        written = _Written({}, [])
        for kind in (MODEL, OPTIMIZER):
            copies = {copy.claim.name: copy for copy in self.copies if copy.claim.kind == kind}
            if not copies and self.index.ranks > 1:
                continue
            file = file_of(kind, self.rank, self.index.ranks)
            done = write_tensors(folder / file, {name: copy.bytes() for name, copy in copies.items()})
            written.files[file] = IndexedFile(size_bytes=done.size_bytes, sha256=done.header_sha256)
            for name, copy in copies.items():
                claim = copy.claim
                piece = Piece(file=file, offsets=claim.offsets, shape=claim.shape, sha256=done.tensors[name])
                written.pieces.append((claim, piece))
        return written

    def _finish(self, folder: Path, written: Sequence[_Written]) -> list[str]:
        """Gives the folder its index and its name; returns the names of what is kept."""
        self.small(folder)
        files = {name: file for each in written for name, file in each.files.items()}
        small = [path for path in sorted(folder.iterdir()) if path.name not in files]
        files |= {path.name: IndexedFile(size_bytes=path.stat().st_size, sha256=file_digest(path)) for path in small}
        tensors = {kind: _tensors(kind, written) for kind in (MODEL, OPTIMIZER)}
        index = replace(self.index, files=files, model=tensors[MODEL], optimizer=tensors[OPTIMIZER])
        write_atomically(folder / INDEX, index_bytes(index))
        former = self.final.exists() and renamed_to_drop(self.final)
        folder.rename(self.final)
        sync_directory(self.final.parent)
        if former:
            shutil.rmtree(former)
        return [path.name for path in self.complete()]


def _new_folder(final: Path) -> Path:
    """Returns a folder that no other attempt writes into: a host that was taken for gone may wake in the middle."""
    folder = final.with_name(f".{final.name}-{secrets.token_hex(4)}")
    folder.mkdir()
    return folder


def _tensors(kind: str, written: Sequence[_Written]) -> dict[str, IndexedTensor]:
    found: dict[str, tuple[Claim, list[Piece]]] = {}
    for each in written:
        for claim, piece in each.pieces:
            if claim.kind == kind:
                found.setdefault(claim.name, (claim, []))[1].append(piece)
    return {
        name: IndexedTensor(
            dtype=claim.dtype, shape=claim.whole, pieces=tuple(sorted(pieces, key=lambda piece: piece.offsets))
        )
        for name, (claim, pieces) in sorted(found.items())
    }


def file_of(kind: str, rank: int, ranks: int) -> str:
    """Returns the name of a rank's file; one process alone writes a model bundle of its own."""
    return f"{kind}.safetensors" if ranks == 1 else f"{kind}-{rank + 1:05d}-of-{ranks:05d}.safetensors"


def drop(path: Path) -> None:
    """Deletes a checkpoint; a kill half-way leaves what the next process deletes, and never takes for a checkpoint."""
    shutil.rmtree(renamed_to_drop(path))


def renamed_to_drop(path: Path) -> Path:
    """Renames a checkpoint so that it is none any more; returns its new name."""
    return path.rename(path.with_name(f".{path.name}.old"))
