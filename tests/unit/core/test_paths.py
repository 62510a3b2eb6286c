from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, RecipeError
from trainwright.core.paths import local_path, read_object, regular


def test_a_tilde_is_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/corpus") == tmp_path / "corpus"
    assert local_path("~") == tmp_path


def test_other_paths_stay_as_they_are():
    assert local_path("a/~b") == Path("a/~b")
    assert local_path("/x") == Path("/x")


def test_an_unknown_user_is_one_line():
    with pytest.raises(RecipeError, match=r"home of an unknown user \(seen '~no-such-user-at-all/x'\)"):
        local_path("~no-such-user-at-all/x")


def test_devices_and_pipes_are_no_files_to_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            regular(path)
    (tmp_path / "link").symlink_to(__file__)
    assert regular(tmp_path / "link") == tmp_path / "link"


def test_a_file_that_nests_too_deep_is_one_line(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="cannot read JSON"):
        read_object(tmp_path / "deep.json")


def test_a_byte_order_mark_is_no_part_of_json(tmp_path):
    (tmp_path / "saved.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_object(tmp_path / "saved.json") == {"a": 1}
