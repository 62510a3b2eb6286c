from __future__ import annotations

import sys

import pytest

from trainwright.core.errors import MissingPackage
from trainwright.stages.data.optional import need


def test_an_installed_module_is_returned():
    assert need("json.decoder", needed_for="reading") is sys.modules["json.decoder"]


def test_a_missing_package_says_what_needs_it_and_how_to_get_it():
    with pytest.raises(MissingPackage) as caught:
        need("no_such_package.part", needed_for="reading Parquet files")
    assert str(caught.value) == (
        "reading Parquet files needs the package 'no_such_package', which is not installed; "
        "run: pip install 'trainwright[data]'"
    )


def test_a_module_missing_inside_an_installed_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        need("half_installed", needed_for="reading")
