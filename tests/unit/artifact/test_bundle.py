"""The model that a directory stands for."""

from __future__ import annotations

import os

import pytest

from trainwright.artifact.bundle import chat_model
from trainwright.core.errors import DataError


def model(folder, *, name="model.json", template=False):
    folder.mkdir(parents=True)
    (folder / name).write_text("{}")
    if template:
        (folder / "chat_template.jinja").write_text("")
    return folder


def artefact(folder, age_s, **options):
    """A finished artefact whose manifest was written some seconds ago."""
    made = model(folder, **options)
    root = folder.parent if folder.name == "huggingface" else folder
    (root / "manifest.json").write_text("{}")
    os.utime(root / "manifest.json", (1e9 - age_s, 1e9 - age_s))
    return made


def test_a_model_stands_for_itself_and_an_export_for_what_is_in_it(tmp_path) -> None:
    own = model(tmp_path / "train-1")
    assert chat_model(own) == own
    theirs = model(tmp_path / "export-1" / "huggingface", name="config.json")
    assert chat_model(tmp_path / "export-1") == chat_model(theirs) == theirs


def test_of_a_workspace_the_newest_model_with_a_template_counts(tmp_path) -> None:
    base = artefact(tmp_path / "train-1", 10)
    assert chat_model(tmp_path) == base
    older = artefact(tmp_path / "train-2", 30, template=True)
    assert chat_model(tmp_path) == older
    newer = artefact(tmp_path / "export-3" / "huggingface", 20, name="config.json", template=True)
    artefact(tmp_path / "train-4.partial", 0, template=True)
    model(tmp_path / "train-5", template=True)  # without a manifest: not finished
    assert chat_model(tmp_path) == newer


def test_where_there_is_no_model_it_says_so(tmp_path) -> None:
    with pytest.raises(DataError, match="no model here .*trainwright export RECIPE"):
        chat_model(tmp_path)
    with pytest.raises(DataError, match="no such directory"):
        chat_model(tmp_path / "absent")
