"""One record for a machine, whoever asks, and however many at once."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.core.errors import DataError
from trainwright.hardware.machine import shared
from trainwright.hardware.machine.shared import FILE, SharedProbes, home, kept_probes, shared_probes
from trainwright.testing.machine import fake_probes


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TRAINWRIGHT_HOME": "/srv/state", "XDG_STATE_HOME": "/x"}, Path("/srv/state")),
        ({"XDG_STATE_HOME": "/x"}, Path("/x/trainwright")),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/trainwright"),
        ({}, Path.home() / ".local/state/trainwright"),
    ],
)
def test_where_the_home_is(environ, expected):
    assert home(environ) == expected


def test_what_is_written_is_read_by_every_workspace(tmp_path):
    place = shared_probes(fallback=tmp_path / "one")
    assert place.read() is None
    place.write(fake_probes())
    assert shared_probes(fallback=tmp_path / "two").read() == fake_probes()
    assert kept_probes() == fake_probes()
    assert not (tmp_path / "one").exists()


def test_another_machine_has_another_record(monkeypatch):
    shared_probes().write(fake_probes())
    monkeypatch.setattr(shared, "machine_digest", lambda: "f" * 64)
    assert kept_probes() is None


def test_a_home_that_cannot_be_made_gives_way_to_the_workspace(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "file" / "below"))
    place = shared_probes(fallback=tmp_path / "workspace")
    assert place.folder.is_relative_to(tmp_path / "workspace")
    place.write(fake_probes())
    assert kept_probes(fallback=tmp_path / "workspace") == fake_probes()
    assert shared_probes() is None
    assert kept_probes() is None


def test_a_home_that_is_only_readable_is_read(monkeypatch, tmp_path):
    shared_probes().write(fake_probes())
    monkeypatch.setattr(os, "access", lambda path, mode: "home" not in str(path))
    assert kept_probes(fallback=tmp_path) == fake_probes()


def test_a_damaged_record_is_named_with_the_way_out():
    place = shared_probes()
    place.path.write_text("{")
    with pytest.raises(DataError, match=rf"{FILE}.*cannot be read.*doctor --fresh"):
        kept_probes()
    place.path.write_text("{}")
    with pytest.raises(DataError, match="not a valid Probes"):
        kept_probes()


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_record_is_passed_over_where_another_is_good(monkeypatch, tmp_path, damaged):
    home = shared_probes()
    monkeypatch.setattr(os, "access", lambda path, mode: "home" not in str(path))
    places = (home, shared_probes(fallback=tmp_path))
    for number, place in enumerate(places):
        place.write(fake_probes())
        if number == damaged:
            place.path.write_text("{")
    assert kept_probes(fallback=tmp_path) == fake_probes()


def test_one_process_measures_and_the_others_wait(tmp_path):
    """Eight processes that measure where nothing is kept: one of them does."""
    context = multiprocessing.get_context("fork")
    with context.Pool(8) as pool:
        measured = pool.map(_measure_where_absent, [tmp_path] * 8)
    assert sum(measured) == 1


def _measure_where_absent(folder):
    place = SharedProbes(folder)
    with place.lock(waiting=lambda: None):
        if place.read() is not None:
            return 0
        place.write(replace(fake_probes(), threads=1))
        return 1


def test_who_waits_is_told(tmp_path):
    waited = []
    place = SharedProbes(tmp_path)
    with place.lock(waiting=lambda: waited.append("first")):
        pass
    assert waited == []
