"""The error tree. Each class is one exit code; each error is one line a user can act on.

::

    TrainwrightError          1  a check said no
    ├── DoesNotFit            1  the plan does not fit on the hardware
    ├── RecipeError           2  usage, recipe, override or environment variable (also a ValueError)
    │   └── RecipeErrors      2  several at once, one line each
    ├── MachineError          3  the machine: a missing package, a port in use, a full disk
    ├── DataError             4  the corpus, a shard, a split
    ├── TrainingError         5  NaN loss, a damaged checkpoint
    └── Interrupted         130  Ctrl-C or SIGTERM; everything up to the last part is kept

``str(error)`` is the whole line: *what*, then where it happened, what was seen, what was expected and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class TrainwrightError(Exception):
    """A user-facing failure, printed as one line and turned into ``exit_code``.

    Args:
        what: the broken expectation, in plain words.
        where: file:line, key, path or address it concerns.
        seen: the value found.
        expected: what would have been right.
        fix: the next command or edit that mends it.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: object | None = None,
        seen: object | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.seen = None if seen is None else str(seen)
        self.expected = expected
        self.fix = fix
        super().__init__(self._line())

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls ``type(self)(line)`` on the other side of a process boundary, which forgets how errors with
        # another signature were made.
        return _revive, (type(self), self.args, self.__dict__)

    def _line(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        details = []
        if self.seen is not None:
            details.append(f"seen {self.seen}")
        if self.expected is not None:
            details.append(f"expected {self.expected}")
        line = head + (f" ({', '.join(details)})" if details else "")
        return f"{line}; {self.fix}" if self.fix else line


def _revive(cls: type[TrainwrightError], args: tuple[Any, ...], state: dict[str, Any]) -> TrainwrightError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class DoesNotFit(TrainwrightError):
    """The planned run needs more than the hardware has."""


class RecipeError(TrainwrightError, ValueError):
    """Something the user wrote is wrong: a recipe key, an override, a flag.

    It is a ValueError too, so that one raised in a pydantic validator is collected with all others; its ``where`` may
    then name a key below the validated section.
    """

    exit_code = 2


class RecipeErrors(RecipeError):
    """All recipe problems at once, one line each."""

    def __init__(self, problems: Iterable[RecipeError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MachineError(TrainwrightError):
    """The machine cannot do what is asked: package, port, disk, driver."""

    exit_code = 3


class MissingPackage(MachineError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, *, needed_for: str, extra: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed",
            fix=f"run: pip install 'trainwright[{extra}]'",
        )


class DataError(TrainwrightError):
    """The corpus or a data artefact is missing, empty, unreadable or damaged."""

    exit_code = 4


class TrainingError(TrainwrightError):
    """Training cannot go on: NaN loss, a damaged checkpoint, a state that does not match."""

    exit_code = 5


class Interrupted(TrainwrightError):
    """The user or the system asked to stop; the same command continues the work."""

    exit_code = 130
