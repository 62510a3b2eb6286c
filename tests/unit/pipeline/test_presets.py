from __future__ import annotations

import pytest

import trainwright
from trainwright.core.errors import RecipeError
from trainwright.pipeline.presets import preset_file, presets


def test_presets_are_files_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "catalog" / "presets").mkdir(parents=True)
    (package / "catalog" / "presets" / "quick.yaml").write_text("seed: 7\n", encoding="utf-8")
    monkeypatch.setattr(trainwright, "__file__", str(package / "__init__.py"))
    assert list(presets()) == ["quick"] and preset_file("quick").name == "quick.yaml"
    with pytest.raises(RecipeError, match=r"^preset: unknown preset \(seen 'quik', .* quick\); did you mean"):
        preset_file("quik")


def test_a_preset_that_is_like_none_says_how_to_go_on():
    with pytest.raises(RecipeError, match=r"unknown preset \(seen 'zzz'.*\); leave it out and give a recipe file"):
        preset_file("zzz")
