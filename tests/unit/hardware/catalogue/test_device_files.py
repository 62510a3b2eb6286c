"""Files of devices that users add: what is wrong is said by file and key."""

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.device_files import checked
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.tables import table

GOOD = table("devices", "h100-sxm")


def test_every_file_of_the_catalogue_is_right():
    for name in device_names():
        assert checked(table("devices", name), name, where=name)["name"] == name


@pytest.mark.parametrize("key", ["name", "kind", "memory_bytes", "flops_per_s", "aliases", "source"])
def test_a_missing_key_is_named(key):
    with pytest.raises(RecipeError, match=f"mine.toml: a device without {key}"):
        checked({name: value for name, value in GOOD.items() if name != key}, "h100-sxm", where="mine.toml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bytes_per_s": -1}, "mine.toml: bytes_per_s: .*seen -1, expected a number above zero"),
        ({"visible_bytes": 0}, "mine.toml: visible_bytes"),
        ({"memory_bytes": "80 GB"}, "mine.toml: memory_bytes"),
        ({"flops_per_s": {"bf16": float("nan")}}, "mine.toml: flops_per_s.bf16"),
        ({"flops_per_s": 1e12}, "mine.toml: flops_per_s"),
        ({"name": "h100"}, "mine.toml: name: .*seen h100, expected h100-sxm"),
        ({"kind": "gpu"}, "mine.toml: kind: unknown kind of device"),
        ({"bandwith": 1}, "mine.toml: unknown key of a device .*bandwith"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    with pytest.raises(RecipeError, match=said):
        checked({**GOOD, **change}, "h100-sxm", where="mine.toml")
