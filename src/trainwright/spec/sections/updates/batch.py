"""The keys of ``train.rate_scaling``: learning rates that follow the batch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.spec.sections.base import Count, Section


class RateScalingSection(Section):
    """Rates that were found at one batch, for another one.

    ``sqrt`` keeps what noise the gradient adds to an adaptive update (Malladi et al., 2022, arXiv 2205.10287);
    ``linear`` is for gradient descent (Goyal et al., 2017, arXiv 1706.02677).
    """

    base_batch_tokens: Count = Field(description="batch_tokens that the recipe's rates were found at")
    rule: Literal["sqrt", "linear"] = Field("sqrt", description="how rates grow with the batch; linear: for sgd")

    def factor(self, batch_tokens: int) -> float:
        """Returns what every peak rate is multiplied by."""
        ratio = batch_tokens / self.base_batch_tokens
        return ratio if self.rule == "linear" else ratio**0.5
