import pytest

from trainwright.hardware.catalogue import tables


@pytest.mark.parametrize("folder", ["devices", "models", "stacks"])
def test_aliases_read_by_themselves_are_those_of_the_whole_file(folder):
    whole = {name: tuple(tables.table(folder, name)["aliases"]) for name in tables.names(folder)}
    assert tables.listed(folder) == whole
    assert any(whole.values())
    assert tables.aliases(folder).keys() == {alias for others in whole.values() for alias in others}


def test_what_stands_in_a_node_is_read_by_itself_too():
    whole = {name: tuple(tables.table("nodes", name)["devices_of"]) for name in tables.names("nodes")}
    assert tables.listed("nodes", "devices_of") == whole


def test_a_file_whose_aliases_stand_elsewhere_is_read_whole(tmp_path, monkeypatch):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "one.toml").write_text('"aliases" = ["first", "second"]\n')
    (tmp_path / "odd" / "two.toml").write_text('aliases = [\n    "third",  # of several lines\n]\n')
    monkeypatch.setattr(tables, "CATALOG", tmp_path)
    assert tables.listed("odd") == {"one": ("first", "second"), "two": ("third",)}


@pytest.mark.parametrize("folder", ["devices", "models", "stacks"])
def test_an_entry_is_named_as_its_file(folder):
    assert all(tables.table(folder, name)["name"] == name for name in tables.names(folder))
