from __future__ import annotations

import subprocess
import sys

import pytest

from fixtures.drawings import DRAWINGS
from trainwright.artifact import store
from trainwright.core.errors import MachineError, MissingPackage, RecipeError
from trainwright.render import pictures
from trainwright.render.pictures import figure


@pytest.mark.parametrize("suffix", figure.SUFFIXES)
@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_equal_data_make_equal_bytes(draw, suffix, tmp_path):
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    draw(first)
    draw(second)
    assert first.read_bytes() == second.read_bytes()


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"picture.pdf: cannot draw such a file .*expected \.svg or \.png"):
        DRAWINGS["memory"](tmp_path / "picture.pdf")


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'trainwright\[pictures\]'"):
        DRAWINGS["memory"](tmp_path / "picture.svg")


def test_importing_the_module_loads_no_matplotlib():
    code = "import sys, trainwright.render.pictures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_no_picture_can_be_is_said_before_anything_is_computed(tmp_path):
    assert pictures.drawable(tmp_path / "a.svg") == tmp_path / "a.svg"
    with pytest.raises(RecipeError, match="cannot draw such a file"):
        pictures.drawable(tmp_path / "a.gif")
    with pytest.raises(MachineError, match="cannot write the picture"):
        pictures.drawable(tmp_path / "none" / "a.svg")


def test_a_long_title_has_several_lines_and_more_height(tmp_path):
    heights = []
    for title in (
        "does not fit: needs 1.3 TiB",
        "does not fit: needs 1.3 TiB of 23.6 GiB; smallest change: 64 devices",
    ):
        with figure.picture(tmp_path / "a.svg", title, height=1.0) as drawn:
            heights.append(drawn.get_figheight())
    assert heights[1] > heights[0]
    assert max(map(len, drawn.get_suptitle().splitlines())) <= 54


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_disk_that_is_full_leaves_the_picture_that_was_there(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"the picture of yesterday")

    def full(path, *chunks):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_atomically", full)
    with pytest.raises(MachineError, match="cannot write the picture"):
        DRAWINGS["memory"](path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"the picture of yesterday"]
