"""Standard streams that take any text and are always there.

A terminal may lack characters (GBK, POSIX, Latin-1), a disk may be full, a stream may be closed, its reader may go.
What can be written is written: a character that the encoding lacks becomes a similar one or ``?``, and what stderr
cannot take is dropped. A result that stdout cannot take is an error with its reason, also where stdout was closed from
the start.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from trainwright.core.errors import MachineError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SIMILAR = {
    **dict.fromkeys("\u00b5\u03bc", "u"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\u2500\u2501", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    "\u00d7": "x",
    "\u00b1": "+/-",
    "\u2248": "~",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2026": "...",
    "\u25b8": ">",
    "\u2192": "->",
    "\u00b7": ".",
    "\u2022": "*",
}
"""Substitutes of characters that an encoding lacks; any other becomes ``?``."""
ERRORS = "trainwright.similar"
"""The name of the handler for such characters (``codecs.register_error``)."""


class ReaderGone(BrokenPipeError):
    """The program that read stdout (``head``, a pager) has ended: nothing more is wanted."""


class OutputLost(MachineError):
    """Stdout cannot take the result, for example because its disk is full."""


class ResultFile(io.FileIO):
    """Stdout. After a failure it is the null device, so that flushing at the end of the process does not fail again."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of ``data`` and returns how many bytes.

        Raises:
            ReaderGone: nobody reads.
            OutputLost: any other failure.
        """
        try:
            return _write(self, data)
        except BrokenPipeError as error:
            _to_null(self.fileno())
            raise ReaderGone(error.errno, error.strerror) from None
        except OSError as error:
            _to_null(self.fileno())
            raise OutputLost(
                "the result cannot be written",
                where="stdout",
                seen=error.strerror,
                fix="what was made before is kept: run the same command with another output",
            ) from None


class RemarkFile(io.FileIO):
    """Stderr. What it cannot take is dropped: notes and progress never end the work that they are about."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of ``data``, or drops it, and returns how many bytes."""
        try:
            return _write(self, data)
        except OSError:
            _to_null(self.fileno())
            return len(memoryview(data))


def prepare() -> None:
    """Replaces ``sys.stdout`` and ``sys.stderr`` by streams that keep these promises; call it once, at the start."""
    codecs.register_error(ERRORS, similar)
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one. Left free, it would become that of the next file that is opened.
            # In the place of stdout stands what refuses to be written, as a closed descriptor does.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_RDWR), True)
    sys.stdout = _text(ResultFile(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(RemarkFile(2, "w", closefd=False), sys.stderr)


def width_of(stream: TextIO) -> int | None:
    """Returns the columns of the terminal behind ``stream`` (``$COLUMNS`` wins); None where it is no terminal."""
    if not stream.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def similar(error: UnicodeError) -> tuple[str, int]:
    """Returns what stands for the characters that an encoding lacks, and where to go on (a handler of ``codecs``).

    Raises:
        UnicodeError: it is not about encoding.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SIMILAR.get(character, "?") for character in lacking), error.end


def _text(raw: io.FileIO, replaced: TextIO | None) -> io.TextIOWrapper:
    """``raw`` as text in the encoding and with the buffering of the stream that it replaces."""
    if not isinstance(replaced, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=ERRORS)
    replaced.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=replaced.encoding,
        errors=ERRORS,
        # Under PYTHONUNBUFFERED streams write through; here they end in a buffer, which each line empties.
        line_buffering=replaced.line_buffering or replaced.write_through,
    )


def _write(raw: io.FileIO, data: ReadableBuffer) -> int:
    """Waits where the descriptor would not (another program may have set O_NONBLOCK on a terminal that is shared)."""
    while (written := io.FileIO.write(raw, data)) is None:
        select.select((), (raw,), ())
    return written


def _to_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
