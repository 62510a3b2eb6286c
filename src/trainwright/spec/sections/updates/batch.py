"""The keys of ``train.rate_scaling``, rates that follow the batch, and of ``train.batch_ramp``, a batch that grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainwright.core.units import parse_duration
from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes
from trainwright.spec.sections.base import Count, DurationText, Section


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


def _without_data(until: str) -> str:
    if parse_duration(until).unit not in ("tokens", "steps"):
        raise ValueError(f"until is in tokens or steps, seen {until}")
    return until


class BatchPartSection(Section):
    """A batch that a run has before its full one, as Llama 3's doubled twice (Dubey et al., 2024, arXiv 2407.21783)."""

    batch_tokens: Count = Field(description="tokens of one optimizer update, over all devices")
    until: Annotated[DurationText, AfterValidator(_without_data)] = Field(
        description="tokens or steps of the run, counted from its start, after which the next size begins"
    )


def batch_sizes(full: int, ramp: Sequence[BatchPartSection], *, sequence_tokens: int) -> BatchSizes:
    """Returns the sizes of a run's batches; each part ends at the whole update that is nearest to its ``until``.

    Raises:
        ValueError: a size is no whole number of sequences or larger than the next one, or a part has no update.
    """
    parts: list[BatchPart] = []
    for number, part in enumerate(ramp):
        key, size = f"batch_ramp.{number}", part.batch_tokens
        if size % sequence_tokens:
            below = size // sequence_tokens * sequence_tokens
            near = " or ".join(str(each) for each in (below, below + sequence_tokens) if each)
            raise ValueError(
                f"{key}.batch_tokens ({size}) is not a multiple of sequence_tokens ({sequence_tokens}); nearest: {near}"
            )
        after = ramp[number + 1].batch_tokens if number + 1 < len(ramp) else full
        if size > after:
            raise ValueError(f"{key}.batch_tokens ({size}) is more than the {after} after it: a batch only grows")
        known, end = BatchSizes(full=size, ramp=tuple(parts)), parse_duration(part.until)
        done = sum(each.steps for each in parts)
        steps = round(end.value) if end.unit == "steps" else known.steps(round(end.value))
        if steps <= done:
            least = f"{done + 1} steps, which are {known.tokens(done + 1)} tokens"
            raise ValueError(f"{key} has no update: its until ({part.until}) must be at least {least}")
        parts.append(BatchPart(batch_tokens=size, steps=steps - done))
    return BatchSizes(full=full, ramp=tuple(parts))
