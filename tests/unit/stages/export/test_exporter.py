"""The protocol tells an exporter from what is none; a plug-in's bundle is written, read back and named after it."""

from __future__ import annotations

import sys
import types

import pytest
from safetensors.torch import load_file, save_file

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.errors import TrainwrightError
from trainwright.model.bundle import build
from trainwright.spec.sections.export import EXPORTER, EXPORTERS, ExportSection
from trainwright.stages.export import run
from trainwright.stages.export.exporter import Exporter


class Plain:
    """Our own names in one file."""

    def write(self, directory, network, *, recipe, trained, dtype):
        self.spec = network.spec
        save_file(dict(network.named_parameters()), directory / "plain.safetensors")

    def read(self, directory):
        network = build(self.spec, load_file(directory / "plain.safetensors"), where=directory)
        return lambda tokens: network.logits(network(tokens))


class Wrong(Plain):
    """Reads other numbers than it wrote."""

    def read(self, directory):
        right = super().read(directory)
        return lambda tokens: right(tokens) + 1


@pytest.fixture(autouse=True)
def _plugged(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_formats", types.SimpleNamespace(Plain=Plain, Wrong=Wrong))


def export(recipe, trained, out, name):
    out.mkdir()
    changed = recipe.model_copy(update={"export": ExportSection(formats=(name,))})
    with Events(None, run="test") as events:
        return run(Context(recipe=changed, inputs={"checkpoint": trained}, out=out, root=out.parent, events=events))


def test_each_known_exporter_is_one() -> None:
    assert all(isinstance(EXPORTER.load(name)(), Exporter) for name in EXPORTERS)
    assert not isinstance(object(), Exporter)


def test_a_plug_in_writes_into_a_folder_of_its_name(tiny, make_trained, recipe, tmp_path) -> None:
    result = export(recipe, make_trained(tiny.decoder()), tmp_path / "out", "my_formats:Plain")
    assert (tmp_path / "out" / "my_formats.Plain" / "plain.safetensors").is_file()
    assert result.summary["formats"] == ["my_formats:Plain"]
    assert result.summary["logit_difference"] == 0.0


def test_a_plug_in_that_computes_something_else_is_refused(tiny, make_trained, recipe, tmp_path) -> None:
    with pytest.raises(TrainwrightError, match="the my_formats:Wrong bundle computes other logits"):
        export(recipe, make_trained(tiny.decoder()), tmp_path / "out", "my_formats:Wrong")
