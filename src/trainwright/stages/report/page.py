"""The page: sections in their order, laid out by the template, with everything it needs inside it."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

import trainwright
from trainwright.stages.report import learning, origins, predictions, quality, verdict
from trainwright.stages.report.run_record import RunRecord

SECTIONS = (
    learning.learning,
    quality.quality,
    learning.samples,
    predictions.prediction,
    predictions.elsewhere,
    origins.data,
    origins.machine,
    origins.provenance,
)
"""In the order of the page."""


def render(run: RunRecord) -> str:
    """Returns the page as HTML: one file, no request to anywhere, every text from outside escaped."""
    folder = files("trainwright.stages.report") / "template"
    environment = Environment(
        loader=PackageLoader("trainwright.stages.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        name=run.recipe.name,
        version=trainwright.__version__,
        sentence=verdict.sentence(run),
        tiles=verdict.tiles(run),
        sections=[section for make in SECTIONS if (section := make(run)) is not None],
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=(folder / "page.js").read_text(encoding="utf-8"),
    )
