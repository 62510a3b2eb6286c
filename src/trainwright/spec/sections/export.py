"""The ``export`` section of a recipe: formats and stored precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from trainwright.core.config.by_name import ByName
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import NamedSection, Section

EXPORTERS: Mapping[str, str] = {
    "huggingface": "trainwright.stages.export.huggingface:HuggingFace",
    "peft": "trainwright.stages.export.peft:Peft",
}
"""An exporter is a class that writes a bundle and reads it back (``stages/export/exporter.py``)."""
EXPORTER = Extension("exporter", EXPORTERS, Called(methods=("write", "read")))


class ExporterSection(NamedSection):
    """A form to write, with its keys."""

    name: Annotated[str, EXPORTER] = Field(description="which form")


class ExportSection(Section):
    """What the trained model is turned into."""

    formats: tuple[Annotated[ExporterSection, ByName(EXPORTER, ExporterSection)], ...] = Field(
        (ExporterSection(name="huggingface"),),
        min_length=1,
        description="bundles to write: names, or mappings of a name and its keys",
    )
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="stored precision of the weights")

    @field_validator("formats")
    @classmethod
    def _each_once(cls, formats: tuple[ExporterSection, ...]) -> tuple[ExporterSection, ...]:
        if len({section.name for section in formats}) < len(formats):
            raise ValueError("a form is named twice, and each is written to a folder of its name")
        return formats

    @property
    def names(self) -> tuple[str, ...]:
        """Returns what is written, by name."""
        return tuple(section.name for section in self.formats)
