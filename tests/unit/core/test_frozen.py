"""A frozen record is what the standard library's decorator would make of the same class."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, replace

import pytest
from pydantic import TypeAdapter

from trainwright.core.frozen import dataclass as ours

STANDARD = dataclasses.dataclass


class Base:
    """Of both."""

    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list)
    fourth: float = field(default=4.0, compare=False, repr=False)

    @property
    def twice(self) -> int:
        """Returns twice the first."""
        return 2 * self.first


def made(decorator, body: type = Base, **options) -> type:
    """The class of ``body`` by one decorator."""
    space = {name: value for name, value in vars(body).items() if name not in ("__dict__", "__weakref__")}
    space["__annotations__"] = dict(body.__annotations__)
    return decorator(frozen=True, **options)(type(body.__name__, (), space))


OPTIONS = [
    {"kw_only": kw_only, "slots": slots, "eq": eq}
    for kw_only in (False, True)
    for slots in (False, True)
    for eq in (False, True)
]


@pytest.fixture(params=OPTIONS, ids=str)
def pair(request) -> tuple[type, type]:
    """One class by our decorator, and the same by the standard library's."""
    return made(ours, **request.param), made(STANDARD, **request.param)


def test_fields_text_and_arguments_are_the_same(pair) -> None:
    mine, theirs = pair
    assert repr(mine(first=1)) == repr(theirs(first=1))
    assert [(each.name, each.type, each.kw_only) for each in dataclasses.fields(mine)] == [
        (each.name, each.type, each.kw_only) for each in dataclasses.fields(theirs)
    ]
    assert dataclasses.asdict(mine(first=1, third=[3])) == dataclasses.asdict(theirs(first=1, third=[3]))
    assert mine.__match_args__ == theirs.__match_args__
    mine_takes, theirs_take = (inspect.signature(each).parameters.values() for each in pair)
    assert [(each.name, each.kind) for each in mine_takes] == [(each.name, each.kind) for each in theirs_take]
    assert getattr(mine, "__slots__", None) == getattr(theirs, "__slots__", None)


@pytest.mark.parametrize("wrong", [{}, {"first": 1, "fifth": 5}])
def test_wrong_arguments_are_refused_in_the_same_words(pair, wrong) -> None:
    words = []
    for each in pair:
        with pytest.raises(TypeError) as caught:
            each(**wrong)
        words.append(str(caught.value))
    assert words[0] == words[1]


def test_each_record_has_a_list_of_its_own(pair) -> None:
    mine, _ = pair
    assert mine(first=1).third is not mine(first=1).third


def test_nothing_changes(pair) -> None:
    for record in (each(first=1) for each in pair):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'first'"):
            record.first = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'first'"):
            del record.first
        assert replace(record, first=2).twice == 4


def test_nothing_is_added(pair) -> None:
    record = pair[0](first=1)  # Python 3.11's own raises a TypeError about ``super`` where there are slots
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'fifth'"):
        record.fifth = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'fifth'"):
        del record.fifth


@pytest.mark.parametrize("names", [(), ("first",), ("first", "second")])
def test_equality_and_hash_go_by_the_fields_that_compare(names) -> None:
    body = type("Body", (), {"__annotations__": dict.fromkeys(names, "int")})
    mine, theirs = made(ours, body), made(STANDARD, body)
    same, other = ({name: place for place, name in enumerate(names, start)} for start in (0, 1))
    assert hash(mine(**same)) == hash(theirs(**same))
    assert mine(**same) == mine(**same)
    assert mine(**same) != theirs(**same)
    assert (mine(**same) == mine(**other)) is (theirs(**same) == theirs(**other))
    by_default = made(ours)
    assert by_default(1, fourth=1.0) == by_default(1, fourth=2.0)
    unequal = made(ours, eq=False)
    assert unequal(1) != unequal(1)


def test_its_own_methods_stay() -> None:
    class Own:
        """With methods of its own."""

        first: int

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("below zero")

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    mine, theirs = made(ours, Own), made(STANDARD, Own)
    assert repr(mine(1)) == "own"
    assert hash(mine(1)) == hash(theirs(1)) == 7
    with pytest.raises(ValueError, match="below zero"):
        mine(-1)


@ours(frozen=True, kw_only=True, slots=True)
class Parent:
    """Can be found by pickle."""

    first: int


@ours(frozen=True, kw_only=True, slots=True)
class Child(Parent):
    """With a field more."""

    second: int = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlugIn(Parent):
    """By the standard library's decorator, as a plug-in has it."""

    third: int = 3


class Plain(Parent):
    """No dataclass: it may have attributes of its own."""


def test_records_can_be_derived_from() -> None:
    assert repr(Child(first=1)) == "Child(first=1, second=2)"
    assert repr(PlugIn(first=1)) == "PlugIn(first=1, third=3)"
    for record in (Child(first=1), PlugIn(first=1)):
        with pytest.raises(FrozenInstanceError):
            record.first = 2
    plain = Plain(first=1)
    plain.more = 2
    del plain.more
    with pytest.raises(FrozenInstanceError):
        plain.first = 2


@pytest.mark.parametrize("record", [Parent(first=1), Child(first=1, second=3)])
def test_copies_and_pickles_are_equal(record) -> None:
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.deepcopy(record) == copy.copy(record) == record


def test_pydantic_checks_its_fields() -> None:
    adapter = TypeAdapter(Child)
    assert adapter.validate_python({"first": "1"}) == Child(first=1)
    assert adapter.dump_python(Child(first=1)) == {"first": 1, "second": 2}
