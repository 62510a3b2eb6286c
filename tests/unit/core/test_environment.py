"""The user's own settings win; torch loads no backend by itself where it costs seconds and brings nothing."""

from __future__ import annotations

import pytest

from trainwright.core import environment
from trainwright.core.environment import AUTOLOAD, SPIN_COUNT, spare_autoload, start_no_threads, wait_briefly


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": SPIN_COUNT}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_only_what_is_unsaid_is_set(given, expected) -> None:
    wait_briefly(given)
    assert given == expected


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4")])
def test_numpy_starts_no_threads(given, expected) -> None:
    start_no_threads(given)
    assert given["OPENBLAS_NUM_THREADS"] == expected


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
    monkeypatch.setattr(environment, "find_spec", lambda _name: object() if installed else None)
    if device:
        (tmp_path / device).parent.mkdir(parents=True)
        (tmp_path / device).touch()
    environ = {} if given is None else {AUTOLOAD: given}
    spare_autoload(environ, tmp_path)
    assert environ.get(AUTOLOAD) == expected
