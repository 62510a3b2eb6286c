from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from annotated_types import Gt
from pydantic import BaseModel, Field

from trainwright.core.config.by_name import ByName
from trainwright.core.config.shape import of_model, shape, walk
from trainwright.core.config.tree import DEFAULT, node_of
from trainwright.core.extension import Extension

PETS = Extension("pet", {"cat": "my.own:cat", "lion": "my.own:cat", "dog": "my.own:dog", "fish": "my.own:fish"})


class Animal(BaseModel):
    kind: Annotated[str, PETS]


class Cat(Animal):
    lives: int = 9


class Dog(Animal):
    barks: bool = Field(True, alias="Barks")


Pet = Annotated[Animal, ByName(PETS, Animal, {"cat": Cat, "lion": Cat, "dog": Dog}, tag="kind")]


class House(BaseModel):
    pets: list[Pet] = []
    guest: Pet | None = None
    rooms: dict[str, Cat] = {}


def test_wrappings_come_off():
    found = shape(Annotated[Annotated[int, Gt(0)] | None, "note"])
    assert found.options == (int,)
    assert found.nullable
    assert Gt(0) in found.constraints


@pytest.mark.parametrize("annotation", [list[int], tuple[int, ...], set[int], Sequence[int], tuple[int, str]], ids=str)
def test_items_of_lists(annotation):
    assert shape(annotation).item(0).options == (int,)


def test_a_fixed_tuple_has_an_end():
    assert shape(tuple[int, str]).item(1).options == (str,)
    assert shape(tuple[int, str]).item(2) is None
    assert shape(list).item(5).options == (Any,)
    assert shape(int).item(0) is None


def test_a_name_chooses_the_section():
    pets = of_model(House).child("pets").item(0)
    assert pets.models == (Animal, Cat, Dog)
    assert pets.chosen(node_of({"kind": "lion"}, DEFAULT)) is Cat
    assert pets.chosen(node_of("dog", DEFAULT)) is Dog
    assert pets.chosen(node_of({"kind": "fish"}, DEFAULT)) is Animal
    assert pets.chosen(node_of({"kind": "no_such_module:bird"}, DEFAULT)) is None
    assert pets.child("lives", node_of({"kind": "cat"}, DEFAULT)).options == (int,)
    assert pets.child("lives", node_of({"kind": "dog"}, DEFAULT)) is None
    assert pets.child("kind").options == (str,)


def test_an_optional_section_keeps_what_chooses_it():
    guest = of_model(House).child("guest")
    assert guest.nullable
    assert guest.chosen(node_of({"kind": "dog"}, DEFAULT)) is Dog


def test_values_of_mappings():
    assert of_model(House).child("rooms").child("kitchen").models == (Cat,)
    assert shape(Mapping[str, int]).child("x").options == (int,)


def test_keys_are_spelt_as_in_files():
    assert [".".join(path) for path, _ in walk(of_model(House))] == [
        "pets",
        "pets.0.kind",
        "pets.0.lives",
        "pets.0.Barks",
        "guest",
        "guest.kind",
        "guest.lives",
        "guest.Barks",
        "rooms",
    ]


def test_defaults_become_trees():
    assert of_model(Cat).child("lives").default_node().plain() == 9
    assert of_model(Cat).child("kind").default_node() is None
