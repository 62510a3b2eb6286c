"""Export: the trained model in the forms that other tools read, checked by reading them back."""

from __future__ import annotations

from trainwright.stages.export.stage import run

__all__ = ["run"]
