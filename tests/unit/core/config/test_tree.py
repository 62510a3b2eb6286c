from __future__ import annotations

from trainwright.core.config.tree import DEFAULT, ValueOrigin, dotted, leaves, node_of, said, shown

ORIGIN = ValueOrigin(layer="override", where="override a.b")


def test_a_tree_gives_back_its_value():
    value = {"a": [1, {"b": None}], "c": {}, "d": "x"}
    assert node_of(value, DEFAULT).plain() == value


def test_children_are_found_by_key_and_index():
    node = node_of({"a": [1, {"b": 2}]}, DEFAULT)
    assert node.child("a").child(1).child("b").content == 2
    assert node.child("a").child(2) is None
    assert node.child("x") is None
    assert node.child("a").child("b") is None


def test_leaves_keep_empty_containers():
    value = {"a": [], "b": {"c": {}, "d": [0, "x"]}, "e": None}
    found = {dotted(path): leaf for path, leaf in leaves(value)}
    assert found == {"a": [], "b.c": {}, "b.d.0": 0, "b.d.1": "x", "e": None}


def test_shown_speaks_yaml_and_stays_short():
    assert shown({"a": [True, None, "x", 1.5]}) == "{a: [true, null, 'x', 1.5]}"
    assert len(shown("x" * 500)) == 60


def test_a_key_is_not_said_twice():
    assert said("a.b", "wrong", ORIGIN) == "wrong"
    assert said("a.c", "wrong", ORIGIN) == "a.c: wrong"
    assert said("", "wrong", DEFAULT) == "wrong"
