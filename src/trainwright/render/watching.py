"""Who calls this package from Python sees how far a run is: below the cell of a notebook, else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from trainwright.core.frozen import dataclass
from trainwright.render.notebook import NotebookProgress, in_notebook, open_area
from trainwright.render.page import colours
from trainwright.render.progress import Progress
from trainwright.spec.event import Event


@dataclass(frozen=True, kw_only=True)
class ErrorStream:
    """The screen of a program: bars where standard error is a terminal, lines where it is not."""

    quiet: bool = False
    verbose: bool = False

    @property
    def stderr(self) -> TextIO:
        """Returns the stream as it is now: programs put others in its place."""
        return sys.stderr

    def colored(self, stream: TextIO) -> bool:
        """Returns whether ``stream`` is a terminal that wants colours."""
        return colours(stream, os.environ)

    def note(self, text: str) -> None:
        """Writes a line."""
        print(text, file=self.stderr, flush=True)


@contextmanager
def watching(*, wanted: bool) -> Iterator[tuple[Callable[[Event], None], ...]]:
    """Yields the listeners of a run: none where none is wanted."""
    if not wanted:
        yield ()
    elif in_notebook():
        with NotebookProgress(open_area()) as progress:
            yield (progress,)
    else:
        with Progress(ErrorStream()) as progress:
            yield (progress,)
