"""The keys of ``train.loss``: what training adds to a task's loss."""

from __future__ import annotations

from pydantic import Field

from trainwright.spec.sections.base import Section


class LossSection(Section):
    """Terms beside a task's loss, of training alone: validation and evaluation measure the task's loss."""

    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of each target that all entries have alike")
    z_weight: float = Field(0.0, ge=0, description="weight of the squared log of softmax's denominator (PaLM: 1e-4)")
    l1_weight: float = Field(0.0, ge=0, description="weight of the sum of matrices' absolute weights, in the gradient")
    l2_weight: float = Field(0.0, ge=0, description="weight of half the sum of their squares, in the gradient")

    @property
    def changes_targets(self) -> bool:
        """Returns whether a term is one of the cross-entropy of targets."""
        return bool(self.label_smoothing or self.z_weight)

    @property
    def penalises(self) -> bool:
        """Returns whether a term is one of weights."""
        return bool(self.l1_weight or self.l2_weight)


PLAIN = LossSection()
"""The task's loss alone."""
