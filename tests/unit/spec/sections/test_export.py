"""What an ``export`` section refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.export import ExportSection


def test_a_form_is_written_once() -> None:
    assert ExportSection.model_validate({"formats": ["huggingface"]}).names == ("huggingface",)
    with pytest.raises(ValidationError, match="a form is named twice"):
        ExportSection.model_validate({"formats": ["huggingface", {"name": "huggingface"}]})
