"""What a plug-in has to be, checked before it is called, and its errors as one line that names it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainwright.core.errors import MACHINE_ERRNOS, RecipeError, TrainwrightError, in_one_line
from trainwright.core.frozen import dataclass
from trainwright.core.registry import is_reference

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """A callable that takes these arguments, by position (under any name) and by name.

    A class must also define ``methods``; what a function makes is checked when it is made.
    """

    arguments: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """Returns what it must be, in words."""
        named = ("*", *self.keywords) if self.keywords else ()
        text = f"a function of ({', '.join((*self.arguments, *named))})"
        return f"{text} or a class with {' and '.join(self.methods)}" if self.methods else text

    def holds(self, value: Any) -> bool:
        """Returns whether an object is that; it is not called."""
        if not callable(value):
            return False
        if inspect.isclass(value) and not all(callable(getattr(value, name, None)) for name in self.methods):
            return False
        try:
            signature = inspect.signature(value)
            bound = signature.bind(*self.arguments, **dict.fromkeys(self.keywords))
        except ValueError:  # some builtins have no signature: the call itself will tell
            return True
        except TypeError:
            return False
        # A wrapper's bare ``*args`` takes anything. Beside named parameters it is a list: ``os.path.join(a, *p)``.
        lists = [each.name for each in signature.parameters.values() if each.kind is each.VAR_POSITIONAL]
        return sum(len(bound.arguments.get(name, ())) for name in lists) in (0, len(self.arguments))


@dataclass(frozen=True, slots=True)
class InstanceOf:
    """An instance of a class."""

    cls: type

    @property
    def expected(self) -> str:
        """Returns what it must be, in words."""
        return f"an instance of {self.cls.__module__}.{self.cls.__qualname__}"

    def holds(self, value: Any) -> bool:
        """Returns whether an object is one."""
        return isinstance(value, self.cls)


def described(value: Any) -> str:
    """Returns what an object is: ``a function of (text)``, ``the class Lion``, ``an object of type int``."""
    if inspect.isfunction(value):
        return f"a function of ({', '.join(inspect.signature(value).parameters)})"
    return f"the class {value.__qualname__}" if inspect.isclass(value) else f"an object of type {type(value).__name__}"


def instance(value: object, cls: type[T]) -> T:
    """Returns what a plug-in returned; a TypeError says that it is something else."""
    if isinstance(value, cls):
        return value
    raise not_an_instance(value, cls)


def not_an_instance(value: object, cls: type) -> TypeError:
    """Returns the error of a plug-in that returned something else; for protocols, which are no ``type[T]``."""
    return TypeError(f"it returned {described(value)}, not {InstanceOf(cls).expected}")


@contextmanager
def blaming(name: str, *, where: str, error_class: type[TrainwrightError] = RecipeError) -> Iterator[None]:
    """Turns whatever the plug-in ``name`` raises into one line about ``where``; our own code's errors stay.

    ``sys.exit`` is a failure like any other: it must not end an unfinished command with exit code 0.

    Raises:
        TrainwrightError: of ``error_class``: the plug-in raised something that is not one of our errors.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if not is_reference(name) or not is_mistake(error):
            raise
        raise failure(name, error, where=where, error_class=error_class) from error


def is_mistake(error: BaseException) -> bool:
    """Returns whether an exception is one of code, not one of our errors and no refusal of the machine."""
    refused = isinstance(error, OSError) and error.errno in MACHINE_ERRNOS
    return not (refused or isinstance(error, (TrainwrightError, MemoryError)))


def failure(name: str, error: BaseException, *, where: str, error_class: type[TrainwrightError]) -> TrainwrightError:
    """Returns the line that names a failed plug-in."""
    fix = "mend it; --debug shows the traceback"
    return error_class("the plug-in {name} failed", where=where, seen=in_one_line(error), fix=fix, name=name)
