"""torch loads no backend by itself where it costs seconds and brings nothing; a user's word stands."""

from __future__ import annotations

import pytest

from trainwright.core import autoload
from trainwright.core.autoload import VARIABLE, spare_autoload


@pytest.mark.parametrize(
    ("installed", "device", "given", "expected"),
    [
        (False, None, None, None),
        (True, None, None, "0"),
        (True, "dev/accel0", None, None),
        (True, "dev/vfio/1", None, None),
        (True, None, "1", "1"),
    ],
)
def test_only_a_package_without_its_device_is_kept_out(tmp_path, monkeypatch, installed, device, given, expected):
    monkeypatch.setattr(autoload, "find_spec", lambda _name: object() if installed else None)
    if device:
        (tmp_path / device).parent.mkdir(parents=True)
        (tmp_path / device).touch()
    environ = {} if given is None else {VARIABLE: given}
    spare_autoload(environ, tmp_path)
    assert environ.get(VARIABLE) == expected
