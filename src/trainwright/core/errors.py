"""The error tree. Each class is one exit code; each error is one line a user can act on.

::

    TrainwrightError          1  a check said no
    ├── DoesNotFit            1  the plan does not fit on the hardware
    ├── RecipeError           2  usage, recipe, override or environment variable (also a ValueError)
    │   └── RecipeErrors      2  several at once, one line each
    ├── MachineError          3  the machine: a missing package, a port in use, a full disk
    ├── DataError             4  the corpus, a shard, a split
    ├── TrainingError         5  NaN loss, a damaged checkpoint
    └── Interrupted         130  Ctrl-C; everything up to the last part is kept
        ├── Terminated      143  the same, by SIGTERM
        ├── HungUp          129  the same, by SIGHUP
        └── Warned          138  the same, by SIGUSR1

``str(error)`` is the whole line: *what*, then where it happened, what was seen, what was expected and how to mend it.

Texts are templates, and the values in them have names, so that texts can be collected and translated::

    raise DataError("{count} of {total} shards are damaged", count=2, total=8, where=folder)

A text in which each ``{name}`` is a named value is filled; any other text stands as it is.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from string import Formatter
from typing import Any, Self

MACHINE_ERRNOS = frozenset(
    (
        errno.EACCES,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
    )
)
"""Refusals of the system that no mistake in a program causes: full disks, missing rights, too many open files."""


class TrainwrightError(Exception):
    """A user-facing failure, printed as one line and turned into ``exit_code``.

    Args:
        template: the broken expectation, in plain words; may hold values: ``{count} shards are damaged``.
        where: file:line, key, path or address it concerns.
        field: the fields of a request that it concerns, joined by ", ". The caller knows what the user set them with,
            an option or a key, and puts that name here and in place of each `` `field` `` in the texts (``renamed``).
        seen: the value that was read or computed.
        expected: what would have been right; a template too.
        fix: the next command or edit that mends it; a template too.
        fields: the values that the templates name.

    Attributes:
        what: ``template`` with its values.
    """

    exit_code = 1

    def __init__(
        self,
        template: str,
        *,
        where: object | None = None,
        field: str | None = None,
        seen: object | None = None,
        expected: str | None = None,
        fix: str | None = None,
        **fields: object,
    ) -> None:
        self.template = template
        self.fields = {name: _plain(value) for name, value in fields.items()}
        self.what = filled(template, fields)
        self.where = None if where is None else str(where)
        self.field = field
        self.seen = None if seen is None else str(seen)
        self.expected = None if expected is None else filled(expected, fields)
        self.fix = None if fix is None else filled(fix, fields)
        super().__init__(_line(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls ``type(self)(line)`` on the other side of a process boundary, which forgets how errors with
        # another signature were made.
        return _revive, (type(self), self.args, self.__dict__)

    def at(self, where: object | None, *, seen: object | None = None, what: str | None = None) -> Self:
        """Returns the same error about another place; with another value seen, and another text, where there is one."""
        changes = {name: str(value) for name, value in (("seen", seen), ("what", what)) if value is not None}
        return self._with(where=None if where is None else str(where), **changes)

    def about(self, field: str) -> Self:
        """Returns the same error about a field."""
        return self._with(field=field)

    def with_fix(self, fix: str | None) -> Self:
        """Returns the same error with other advice, or with none."""
        return self._with(fix=fix)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Returns the same error in a caller's names.

        Each `` `field` `` in its texts is replaced; its place, where it has none but a field, is the field's name.
        """
        where = self.where
        if where is None and self.field is not None:
            where = ", ".join(names.get(field, field) for field in self.field.split(", "))
        texts = {"what": self.what, "expected": self.expected, "fix": self.fix}
        replaced = {name: None if text is None else with_names(text, names) for name, text in texts.items()}
        return self._with(where=where, **replaced)

    def _with(self, **changes: str | None) -> Self:
        other = copy.copy(self)
        other.__dict__ |= changes
        other.args = (_line(other),)
        return other


@contextmanager
def about(field: str) -> Iterator[None]:
    """Says which field an error is about, where the error itself names neither a field nor a place."""
    try:
        yield
    except TrainwrightError as error:
        if error.where is not None or error.field is not None:
            raise
        raise error.about(field) from error


def in_one_line(error: BaseException) -> str:
    """Returns an exception's type and the first line of its message; characters that cannot be printed are escaped."""
    first = next(iter(str(error).strip().splitlines()), "")
    message = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in first)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _line(error: TrainwrightError) -> str:
    place = error.where or error.field
    head = f"{place}: {error.what}" if place else error.what
    details = []
    if error.seen is not None:
        details.append(f"seen {error.seen}")
    if error.expected is not None:
        details.append(f"expected {error.expected}")
    line = head + (f" ({', '.join(details)})" if details else "")
    return f"{line}; {error.fix}" if error.fix else line


def _plain(value: object) -> bool | int | float | str:
    """Numbers as they are, anything else as its text: an error crosses processes and becomes JSON."""
    return value if isinstance(value, (bool, int, float)) else str(value)


def filled(template: str, fields: Mapping[str, object]) -> str:
    """Returns ``template`` with the values of ``fields``; a text that names anything else is no template."""
    names = placeholders(template)
    if not names or not names <= fields.keys():
        return template
    try:
        return template.format_map(fields)
    except ValueError:  # braces of another kind: ``add {stage: export} to it``
        return template


def placeholders(template: str) -> set[str]:
    """Returns the names in braces; none where the braces are not a template's."""
    try:
        return {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        return set()


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Returns ``text`` with the caller's name in place of each `` `field` ``."""
    for field, name in names.items():
        text = text.replace(f"`{field}`", name)
    return text


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
    """All that is wrong with a recipe at once, one line each; the exit code is theirs where all have the same."""

    def __init__(self, problems: Iterable[TrainwrightError]) -> None:
        self.problems = tuple(problems)
        codes = {problem.exit_code for problem in self.problems}
        self.exit_code = codes.pop() if len(codes) == 1 else RecipeError.exit_code
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MachineError(TrainwrightError):
    """The machine cannot do what is asked: package, port, disk, driver."""

    exit_code = 3


class MissingPackage(MachineError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, *, needed_for: str, extra: str) -> None:
        super().__init__(
            "{needed_for} needs the package {package!r}, which is not installed",
            fix="run: pip install 'trainwright[{extra}]'",
            needed_for=needed_for,
            package=package,
            extra=extra,
        )


class DataError(TrainwrightError):
    """The corpus or a data artefact is missing, empty, unreadable or damaged."""

    exit_code = 4


class TrainingError(TrainwrightError):
    """Training cannot go on: NaN loss, a damaged checkpoint, a state that does not match."""

    exit_code = 5


class Interrupted(TrainwrightError):
    """The user asked to stop; the same command continues the work."""

    exit_code = 130


class Terminated(Interrupted):
    """The system asked to stop (SIGTERM), for example a scheduler at the end of a job's time."""

    exit_code = 143


class HungUp(Interrupted):
    """The terminal closed (SIGHUP), for example with its connection."""

    exit_code = 129


class Warned(Interrupted):
    """A scheduler said that the time is nearly over (SIGUSR1, as ``sbatch --signal=USR1@120`` asks for)."""

    exit_code = 138
