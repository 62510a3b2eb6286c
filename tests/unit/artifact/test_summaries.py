"""What a line shows of a summary is a field of it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from trainwright.artifact.summaries import AuditSummary, DataSummary, ExportSummary, ImageSummary, PlanSummary
from trainwright.render.results.summaries import PHRASES


@pytest.mark.parametrize(
    ("stage", "records"),
    [
        ("plan", (PlanSummary,)),
        ("data", (DataSummary, ImageSummary)),
        ("audit", (AuditSummary,)),
        ("export", (ExportSummary,)),
    ],
)
def test_what_is_printed_of_a_summary_is_a_field_of_it(stage: str, records: tuple[type, ...]) -> None:
    assert {key for key, _ in PHRASES[stage]} <= {field.name for record in records for field in fields(record)}
