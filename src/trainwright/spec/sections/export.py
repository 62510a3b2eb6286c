"""The ``export`` section of a recipe: formats and stored precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import Section

EXPORTERS: Mapping[str, str] = {"huggingface": "trainwright.stages.export.huggingface:HuggingFace"}
"""An exporter is a class without arguments that writes a bundle and reads it back (``stages/export/exporter.py``)."""
EXPORTER = Extension("exporter", EXPORTERS, Called(methods=("write", "read")))


class ExportSection(Section):
    """What the trained model is turned into."""

    formats: tuple[Annotated[str, EXPORTER], ...] = Field(
        ("huggingface",), min_length=1, description="bundles to write"
    )
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="stored precision of the weights")
