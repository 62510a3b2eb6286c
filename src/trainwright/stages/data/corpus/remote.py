"""Files of a corpus that fsspec lists and opens: S3, HTTP and whatever else has a protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainwright.core.errors import DataError, MachineError, TrainwrightError, in_one_line
from trainwright.stages.data.optional import need


def is_url(path: str) -> bool:
    """Returns whether a path of a recipe is for fsspec."""
    return "://" in path


def open_filesystem(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of a URL, and the path in it.

    Raises:
        MissingPackage: fsspec is not installed.
        MachineError: the protocol's own package is not.
        DataError: no such protocol.
    """
    fsspec = need("fsspec", needed_for=f"reading {url}")
    with _protocol(url):
        filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path


def check_protocol(url: str) -> None:
    """Refuses a URL whose protocol is not known here; raises as ``open_filesystem``, and asks no network."""
    fsspec = need("fsspec", needed_for=f"reading {url}")
    with _protocol(url):
        for link in url.split("::"):
            fsspec.get_filesystem_class(link.partition("://")[0])


@contextmanager
def _protocol(url: str) -> Iterator[None]:
    """Turns what fsspec raises for a protocol into our errors."""
    try:
        yield
    except ImportError as error:
        raise MachineError(
            "cannot open this URL: {error}", where=url, fix="install that package with pip", error=error
        ) from error
    except ValueError as error:
        raise DataError("cannot open this URL", where=url, seen=str(error)) from error


def remote_entries(
    url: str, magic: re.Pattern[str], takes: Callable[[str], bool]
) -> Iterator[tuple[str, str, int, str]]:
    """Yields name, URL, size in bytes and checksum of each file that a URL stands for.

    ``magic`` finds a pattern in the path; ``takes`` chooses by name in a directory.

    Raises:
        OSError: what the file system says.
        DataError, MachineError: as ``open_filesystem``, and as ``_reaching``.
    """
    fs, path = open_filesystem(url)
    with _reaching(url):
        pattern = magic.search(path)
        if pattern:
            root, entries = path[: pattern.start()].rpartition("/")[0], fs.glob(path, detail=True)
        else:
            facts = fs.info(path)
            tree = facts["type"] == "directory"
            root, entries = (path, fs.find(path, detail=True)) if tree else (path.rpartition("/")[0], {path: facts})
            if tree:
                entries = {key: item for key, item in entries.items() if takes(key.rpartition("/")[2])}
        for key, item in entries.items():
            if item["type"] != "directory":
                name = key.removeprefix(root).lstrip("/")
                yield name, fs.unstrip_protocol(key), int(item.get("size") or 0), str(fs.checksum(key))


def remote_version(url: str) -> str:
    """Returns the checksum that the file system gives now.

    Raises:
        OSError: what the file system says.
    """
    fs, path = open_filesystem(url)
    with _reaching(url):
        fs.invalidate_cache()
        return str(fs.checksum(path))


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turns what the client of a file system raises (of HTTP, S3, a hub) into our error; OSError stays.

    Raises:
        MachineError: the network or whoever answers there says no.
    """
    try:
        yield
    except (OSError, MemoryError, TrainwrightError):
        raise
    except Exception as error:  # each client has errors of its own
        raise MachineError("cannot reach this URL", where=url, seen=in_one_line(error)) from error
