"""Which files a corpus consists of, and one digest of what is in them.

Names are relative to what the recipe points at, so that the same corpus in another place is the same corpus. Local
paths never touch fsspec. Nothing here imports numpy, pyarrow or torch: the pipeline asks for the digest before it
knows whether there is work to do.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwright.artifact.store import write_atomically, writing
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.spec.recipe_data import DataSection, FilesSource, PythonStdlibSource, Source
from trainwright.stages.data.optional import need

_MAGIC = re.compile(r"[*?\[]")
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__", "_bundled"})
_NAMES_IN_DIRECTORIES = {
    "text": ("*",),
    "jsonl": ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst", "*.ndjson", "*.ndjson.gz", "*.ndjson.zst"),
    "parquet": ("*.parquet", "*.parquet.gz", "*.parquet.zst"),
}
"""What is taken from a directory; ``files`` has its own ``include``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of the corpus. Files are ordered by (``source``, ``name``).

    ``name`` is relative to what the recipe names; ``location`` is the local path or URL; ``version`` changes when the
    content may have changed.
    """

    source: int
    name: str
    location: str
    size_bytes: int
    version: str

    @property
    def remote(self) -> bool:
        """Whether fsspec opens it."""
        return is_url(self.location)


def is_url(path: str) -> bool:
    """Whether a path of a recipe is for fsspec."""
    return "://" in path or "::" in path


def corpus_files(section: DataSection) -> tuple[InputFile, ...]:
    """Every file of the corpus, in its order.

    Raises:
        DataError: a path is missing, a pattern matches nothing, a directory cannot be listed, or all is empty.
    """
    files: list[InputFile] = []
    for number, source in enumerate(section.sources):
        found = sorted(_source_files(number, source), key=lambda file: (file.name, file.location))
        files += found
    if not any(file.size_bytes for file in files):
        raise DataError(
            "the corpus is empty", seen=f"{len(files)} files, 0 bytes", expected="some text", fix="check data.sources"
        )
    return tuple(files)


def corpus_digest(section: DataSection, *, cache: Path | None) -> str:
    """sha256 over the names and contents of all files, and of a pretrained tokenizer: the input of the data stage.

    Local files are hashed once and remembered in ``cache`` by path, size and modification time; a remote file counts
    by the checksum its file system gives.

    Raises:
        DataError: as ``corpus_files``, or a file cannot be read.
    """
    files = corpus_files(section)
    known = _read_cache(cache)
    local = [file for file in files if not file.remote]
    stale = [file for file in local if known.get(file.location, ("", ""))[0] != file.version]
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        fresh = dict(zip((file.location for file in stale), pool.map(_digest_file, stale), strict=True))
    now = {file.location: (file.version, fresh.get(file.location) or known[file.location][1]) for file in local}
    if cache is not None and stale:
        with writing(cache):
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, json.dumps(known | now).encode())
    entries = [[file.source, file.name, file.version if file.remote else now[file.location][1]] for file in files]
    return digest({"files": entries, "tokenizer": tokenizer_digest(section)})


def _digest_file(file: InputFile) -> str:
    try:
        return file_digest(Path(file.location))
    except OSError as error:
        raise unreadable(file.location, error) from error


def tokenizer_digest(section: DataSection) -> str | None:
    """sha256 of a pretrained tokenizer's file, or None where one is trained.

    Raises:
        DataError: there is no such file.
    """
    if section.tokenizer.path is None:
        return None
    path = Path(section.tokenizer.path).expanduser()
    if not path.is_file():
        raise DataError("no tokenizer here", where=path, expected="a tokenizer.json", fix="check data.tokenizer.path")
    return file_digest(path)


def _read_cache(cache: Path | None) -> dict[str, tuple[str, str]]:
    if cache is None or not cache.is_file():
        return {}
    try:
        record = json.loads(cache.read_bytes())
    except ValueError:  # damaged: everything is hashed again and the cache rewritten
        return {}
    return {path: (entry[0], entry[1]) for path, entry in record.items()} if isinstance(record, dict) else {}


def unreadable(where: str, error: OSError) -> DataError:
    """The one line for a file that is there but cannot be read."""
    return DataError(
        "cannot read this file", where=where, seen=error.strerror or repr(error), fix="check its permissions"
    )


# ------------------------------------------------------------------------------------------------------------- listing
def _source_files(number: int, source: Source) -> Iterator[InputFile]:
    if isinstance(source, PythonStdlibSource):
        yield from _local_tree(number, Path(sysconfig.get_path("stdlib")), ("*.py",), skip=_SKIPPED_FOLDERS)
        return
    patterns = source.include if isinstance(source, FilesSource) else _NAMES_IN_DIRECTORIES[source.kind]
    for order, path in enumerate(source.paths):
        found = _remote(number, path, patterns) if is_url(path) else _local(number, path, patterns)
        empty = True
        for file in found:
            empty = False
            # Two paths of one source may hold equal names: the path's number keeps them apart and in order.
            yield file if len(source.paths) == 1 else _renamed(file, f"{order}/{file.name}")
        if empty:
            raise DataError(
                "no file matches", where=path, expected=f"files named {', '.join(patterns)}",
                fix=f"check data.sources.{number}.paths",
            )  # fmt: skip


def _renamed(file: InputFile, name: str) -> InputFile:
    return InputFile(
        source=file.source, name=name, location=file.location, size_bytes=file.size_bytes, version=file.version
    )


def _local(number: int, given: str, patterns: Iterable[str]) -> Iterator[InputFile]:
    path = Path(given).expanduser()
    if path.is_dir():
        yield from _local_tree(number, path, patterns)
    elif path.exists():
        yield _local_file(number, path, path.parent)
    elif _MAGIC.search(given):
        fixed = Path(*_fixed_parts(path.parts))
        for match in glob.glob(str(path), recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
            if not Path(match).is_dir():
                yield _local_file(number, Path(match), fixed)
    else:
        raise DataError("no such file or directory", where=given, fix=f"check data.sources.{number}.paths")


def _fixed_parts(parts: tuple[str, ...]) -> list[str]:
    """The leading parts of a glob that hold no pattern."""
    fixed: list[str] = []
    for part in parts[:-1]:
        if _MAGIC.search(part):
            break
        fixed.append(part)
    return fixed


def _local_tree(
    number: int, root: Path, patterns: Iterable[str], *, skip: frozenset[str] = frozenset()
) -> Iterator[InputFile]:
    def refuse(error: OSError) -> None:
        raise DataError("cannot list this directory", where=error.filename, seen=error.strerror) from error

    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns):
                yield _local_file(number, Path(folder, name), root)


def _local_file(number: int, path: Path, root: Path) -> InputFile:
    try:
        facts = path.stat()
    except OSError as error:
        raise unreadable(str(path), error) from error
    # A file name that is no text (it can be any bytes on Linux) is shown with escapes.
    name = path.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()
    return InputFile(
        source=number, name=name, location=str(path.absolute()),
        size_bytes=facts.st_size, version=f"{facts.st_size}-{facts.st_mtime_ns}",
    )  # fmt: skip


def _remote(number: int, url: str, patterns: Iterable[str]) -> Iterator[InputFile]:
    fs, path = open_filesystem(url)
    try:
        if _MAGIC.search(path):
            root, found = path[: _MAGIC.search(path).start()].rpartition("/")[0], fs.glob(path, detail=True)  # type: ignore[union-attr]
        else:
            facts = fs.info(path)
            tree = facts["type"] == "directory"
            root, found = (path, fs.find(path, detail=True)) if tree else (path.rpartition("/")[0], {path: facts})
            if tree:
                found = {key: item for key, item in found.items() if _wanted(key, patterns)}
        for key, item in found.items():
            if item["type"] != "directory":
                yield InputFile(
                    source=number, name=key.removeprefix(root).lstrip("/"), location=fs.unstrip_protocol(key),
                    size_bytes=int(item.get("size") or 0), version=str(fs.checksum(key)),
                )  # fmt: skip
    except FileNotFoundError as error:
        raise DataError("no such file or directory", where=url, fix=f"check data.sources.{number}.paths") from error
    except OSError as error:
        raise unreadable(url, error) from error


def _wanted(path: str, patterns: Iterable[str]) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns)


def open_filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it.

    Raises:
        MissingPackage: fsspec is not installed.
        MachineError: the protocol's own package is not.
        DataError: no such protocol.
    """
    fsspec = need("fsspec", needed_for=f"reading {url}")
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MachineError(f"cannot open this URL: {error}", where=url, fix="install that package with pip") from error
    except ValueError as error:
        raise DataError("cannot open this URL", where=url, seen=str(error)) from error
    return filesystem, path
