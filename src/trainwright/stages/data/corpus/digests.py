"""Digests of a corpus: of its blocks, so that each byte is checked when it is read, and of all of it, its address.

A file is hashed in blocks of 4 MiB (larger ones above 64 GiB, so that no file has more than 16,384). The blocks'
digests go with the file to whoever reads it, and ``checked`` compares each block as it is read: what a dataset is
made of is what its address says, whatever happens to the files meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from trainwright.artifact.store import writable
from trainwright.core.errors import DataError, MachineError, TrainwrightError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.core.paths import local_path
from trainwright.core.registry import load
from trainwright.core.source_digest import source_digest
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.entries import CorpusFile, SkippedFile
from trainwright.stages.data.corpus.files import (
    Entry,
    list_files,
    not_skipped,
    refusal,
    special_kind,
    stat_version,
    unreadable,
)
from trainwright.stages.data.parts import publish
from trainwright.stages.data.plug_ins import plug_ins

CACHE = "corpus-digests.json"
TEMPLATE = "trainwright.stages.data.chats.phase:template_digest"
"""The cache's name in a workspace."""
DIGEST_BYTES = 32
_BLOCK_BYTES = 4 << 20
_MOST_BLOCKS = 1 << 14
_CHUNK_BYTES = 1 << 20
_SETTLED_NS = 2 * 10**9
"""A file younger than this may change again without a new time stamp (they are as coarse as 2 s): never remembered."""
_CACHE_FORMAT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """The files of a corpus, hashed, and those that were skipped, each in the corpus's order.

    ``changed`` are the paths whose content is another than when this workspace saw them last.
    """

    files: tuple[CorpusFile, ...]
    skipped: tuple[SkippedFile, ...] = ()
    changed: tuple[str, ...] = ()

    def digest(self) -> str:
        """Returns the sha256 (hex) over the names and contents of the files and over what was skipped."""
        files = [
            [file.source, file.name, file.version]
            if file.remote
            else [file.source, file.name, file.size_bytes, hashlib.sha256(file.blocks).hexdigest()]
            for file in self.files
        ]
        return digest({"files": files, "skipped": [[file.source, file.name, file.reason] for file in self.skipped]})


def read_corpus(section: DataSection, *, cache: Path | None, settle: bool = True) -> Corpus:
    """Lists and hashes a corpus.

    Local files are hashed once and remembered in ``cache``, by path, size, times and inode; a remote file counts by
    the checksum that its file system gives. Without ``settle`` files that were too young when they were hashed last
    and have not changed since are not written to ``cache`` again: who looks for a dataset changes nothing.

    Raises:
        DataError: a path is missing, a pattern matches nothing, all is empty, or ``strict`` and a file is skipped.
    """
    entries = list_files(section)
    known = _read_cache(cache)
    local = [entry for entry in entries if isinstance(entry, CorpusFile) and not entry.remote]
    stale = [file for file in local if not _remembered(file, known)]
    hashed = dict(zip((file.location for file in stale), _hash_all(stale), strict=True))
    result = [_with_blocks(entry, hashed, known) for entry in entries]
    fresh = [outcome for outcome in hashed.values() if isinstance(outcome, _Hashed)]
    changed = [item.file.location for item in fresh if item.differs(known)]
    news = [item for item in fresh if settle or item.known()[::2] != known.get(item.file.location, ())[::2]]
    if cache is not None and news and writable(cache):
        _write_cache(cache, known, news)
    skipped = tuple(entry for entry in result if isinstance(entry, SkippedFile))
    files = tuple(entry for entry in result if isinstance(entry, CorpusFile))
    if section.strict and skipped:
        raise not_skipped(skipped[0])
    if not any(file.size_bytes for file in files):
        left_out = f", {len(skipped)} skipped: {skipped[0].reason}" if skipped else ""
        raise DataError(
            "the corpus is empty",
            seen=f"{len(files)} file{'s' * (len(files) != 1)}, 0 bytes{left_out}",
            expected="some text",
            fix="check data.sources",
        )
    return Corpus(files=files, skipped=skipped, changed=tuple(changed))


def corpus_digest(section: DataSection, *, cache: Path | None) -> str:
    """Returns the sha256 (hex) of the corpus and of a pretrained tokenizer: the input of the data stage.

    Raises:
        DataError: as ``read_corpus`` and ``tokenizer_digest``.
    """
    return input_digest(read_corpus(section, cache=cache, settle=False), section)


def outside_digests(section: DataSection, *, cache: Path | None) -> dict[str, str]:
    """Returns what a dataset is made of besides the recipe: the corpus, and the code of plug-ins where there are any.

    Raises:
        DataError: as ``corpus_digest``.
        RecipeError: a plug-in's code cannot be found.
    """
    code = {reference: source_digest(reference) for reference in plug_ins(section)}
    return {"corpus": corpus_digest(section, cache=cache)} | ({"plug-ins": digest(code)} if code else {})


def input_digest(corpus: Corpus, section: DataSection) -> str:
    """Returns the sha256 (hex) of a corpus that was listed, of a pretrained tokenizer, and of a chat template."""
    parts = {"corpus": corpus.digest(), "tokenizer": tokenizer_digest(section)}
    if section.records in ("chats", "preferences"):
        parts["template"] = load(TEMPLATE, kind="function")(section)
    return digest(parts)


def tokenizer_digest(section: DataSection) -> str | None:
    """Returns the sha256 of a pretrained tokenizer's file, or None where one is trained.

    Raises:
        DataError: there is no such file.
    """
    if section.tokenizer.path is None:
        return None
    path = local_path(section.tokenizer.path)
    if not path.is_file():
        raise DataError("no tokenizer here", where=path, expected="a tokenizer.json", fix="check data.tokenizer.path")
    return file_digest(path)


# ------------------------------------------------------------------------------------------------------------- hashing
@dataclass(frozen=True, kw_only=True, slots=True)
class _Hashed:
    """A file with its blocks; ``settled`` where equal facts of the file system will mean equal content."""

    file: CorpusFile
    settled: bool

    def known(self) -> _Known:
        """Returns what the cache remembers of it."""
        return self.file.version, self.settled, self.file.blocks

    def differs(self, known: dict[str, _Known]) -> bool:
        """Returns whether the cache knows other content under its path."""
        return known.get(self.file.location, self.known())[2] != self.file.blocks


def block_bytes(size_bytes: int) -> int:
    """Returns the size of a block in a file of ``size_bytes``."""
    size = _BLOCK_BYTES
    while size * _MOST_BLOCKS < size_bytes:
        size *= 2
    return size


def open_regular(location: str) -> int:
    """Opens a file without waiting for a writer, as a named pipe would; returns the handle.

    Raises:
        OSError: what the operating system says.
    """
    return os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def hash_file(file: CorpusFile) -> CorpusFile | SkippedFile:
    """Returns the file with the digests of its blocks, or the reason to skip it.

    Raises:
        DataError: it cannot be read for a reason that is not its own.
    """
    outcome = _hash_file(file)
    return outcome.file if isinstance(outcome, _Hashed) else outcome


def _hash_file(file: CorpusFile) -> _Hashed | SkippedFile:
    begin_ns = time.time_ns()
    try:
        handle = open_regular(file.location)
        try:
            facts = os.fstat(handle)
            special = special_kind(facts.st_mode)
            if special is not None:
                return _skipped(file, special)
            blocks = b"".join(_block_digests(handle, facts.st_size))
            settled = begin_ns - max(facts.st_mtime_ns, facts.st_ctime_ns) > _SETTLED_NS
            settled = settled and stat_version(os.fstat(handle)) == stat_version(facts)
        finally:
            os.close(handle)
    except OSError as error:
        reason = refusal(error)
        if reason is None:
            raise unreadable(file.location, error) from error
        return _skipped(file, reason)
    version = stat_version(facts)
    return _Hashed(file=replace(file, size_bytes=facts.st_size, version=version, blocks=blocks), settled=settled)


def _block_digests(handle: int, size_bytes: int) -> Iterator[bytes]:
    length = block_bytes(size_bytes)
    for start in range(0, size_bytes, length):
        sha256 = hashlib.sha256()
        stop = min(start + length, size_bytes)
        for offset in range(start, stop, _CHUNK_BYTES):
            sha256.update(os.pread(handle, min(_CHUNK_BYTES, stop - offset), offset))
        yield sha256.digest()


def _skipped(file: CorpusFile, reason: str) -> SkippedFile:
    return SkippedFile(source=file.source, name=file.name, location=file.location, reason=reason)


_Outcome = _Hashed | SkippedFile | TrainwrightError | MemoryError
_Outcomes = SimpleQueue[tuple[int, _Outcome] | None]


def _hash_all(files: Sequence[CorpusFile]) -> list[_Hashed | SkippedFile]:
    # Daemons that nobody joins: where a read never returns (a network file system that is gone), Ctrl-C and SIGTERM
    # still end the process. A pool of the standard library waits for its threads, sometimes for ever after a signal.
    waiting = iter(list(enumerate(files)))
    done: _Outcomes = SimpleQueue()
    threads = min(8, os.cpu_count() or 1, len(files))
    for _ in range(threads):
        threading.Thread(target=_hash_waiting, args=(waiting, done), daemon=True).start()
    outcomes: dict[int, _Hashed | SkippedFile] = {}
    try:
        for place, outcome in itertools.chain.from_iterable(iter(done.get, None) for _ in range(threads)):
            if isinstance(outcome, Exception):
                raise outcome
            outcomes[place] = outcome
    finally:
        deque(waiting, maxlen=0)  # after an error or an interrupt nothing is waiting any more
    return [outcomes[place] for place in range(len(files))]


def _hash_waiting(waiting: Iterator[tuple[int, CorpusFile]], done: _Outcomes) -> None:
    """Hash what waits, which several threads share; ``None`` says that this thread ends."""
    try:
        for place, file in waiting:
            try:
                done.put((place, _hash_file(file)))
            except (TrainwrightError, MemoryError) as error:
                done.put((place, error))
    finally:
        done.put(None)


def _with_blocks(entry: Entry, hashed: dict[str, _Hashed | SkippedFile], known: dict[str, _Known]) -> Entry:
    if isinstance(entry, SkippedFile) or entry.remote:
        return entry
    outcome = hashed.get(entry.location)
    if outcome is None:
        return replace(entry, blocks=known[entry.location][2])
    if isinstance(outcome, SkippedFile):
        return _skipped(entry, outcome.reason)
    return replace(outcome.file, source=entry.source, name=entry.name)


# --------------------------------------------------------------------------------------------------------------- cache
_Known = tuple[str, bool, bytes]
"""Version, whether it is settled, digests of the blocks."""


def _remembered(file: CorpusFile, known: dict[str, _Known]) -> bool:
    version, settled, _ = known.get(file.location, ("", False, b""))
    return settled and version == file.version


def _read_cache(cache: Path | None) -> dict[str, _Known]:
    try:
        record: Any = json.loads(cache.read_bytes()) if cache is not None else {}
        if not isinstance(record, dict) or record.get("format") != _CACHE_FORMAT:
            return {}
        if record["sha256"] != digest(record["files"]):
            return {}
        return {path: (entry[0], bool(entry[1]), bytes.fromhex(entry[2])) for path, entry in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}  # absent or damaged: everything is hashed again and the cache is written anew


def _write_cache(cache: Path, known: dict[str, _Known], fresh: Iterable[_Hashed]) -> None:
    now = known | {item.file.location: item.known() for item in fresh}
    files = {path: (version, settled, blocks.hex()) for path, (version, settled, blocks) in now.items()}
    # A workspace that cannot be written to costs another hashing, no more.
    with contextlib.suppress(OSError, MachineError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        publish(cache, [json.dumps({"format": _CACHE_FORMAT, "files": files, "sha256": digest(files)}).encode()])
