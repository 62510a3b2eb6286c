"""Everything a training run was resolved to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainwright.core.registry import load
from trainwright.runtime.execution import Execution
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.batch_sizes import BatchSizes
from trainwright.spec.summary import ResultWeights
from trainwright.spec.workload import Recompute, recomputed_blocks

PLACE = "trainwright.stages.train.faults.passing_over:place"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(Execution):
    """A run with no ``auto`` left in it; sequences are those of one update, an epoch is one of the train split."""

    model: ModelSpec
    steps: int
    asked_warmup_steps: int
    epoch_tokens: int
    sequence_tokens: int
    sizes: BatchSizes
    """Tokens of each update."""
    micro_batch: int
    precision: str
    dtype: torch.dtype
    compiled: bool
    recompute: Recompute = "none"
    recompute_budget: float = 0.0
    average_from: int = 0
    """Steps of the run before the average of the weights begins."""
    result_weights: ResultWeights = "trained"
    rate_factor: float = 1.0
    """What peak rates of the recipe are multiplied by, for they were found at another batch."""
    width_ratio: float = 1.0
    """How many times as wide the network is as the one that the recipe's rates were found at."""
    offload: bool = False
    """The optimizer's state is in host memory, and the host updates."""
    peak_flops_per_s: float | None

    @property
    def warmup_steps(self) -> int:
        """Updates of the warm-up, no more than the run has."""
        return min(self.steps, self.asked_warmup_steps)

    @property
    def recomputed(self) -> int | None:
        """Blocks that are recomputed, where it is not all that ``recompute`` is for."""
        budget = self.recompute_budget
        return recomputed_blocks(budget, self.model.layers) if budget else None

    @property
    def passes(self) -> float:
        """How many times the run reads the train split."""
        return self.sizes.tokens(self.steps) / self.epoch_tokens

    def notes(self) -> list[str]:
        """Returns what a user should know of the run before it begins, a line each."""
        parts = self.sizes.parts(self.steps)
        sizes = ", then ".join(f"{part.steps:,} updates of {part.batch_tokens:,}" for part in parts)
        notes = [f"{sizes} tokens read the train split {self.passes:.3g} times"]
        if self.steps <= sum(part.steps for part in self.sizes.ramp):
            notes.append(f"the run ends before its batch is full ({self.sizes.full:,} tokens): shorten batch_ramp")
        if self.asked_warmup_steps > self.steps:
            notes.append(
                f"the warm-up ({self.asked_warmup_steps:,} updates) is longer than the run ({self.steps:,}): it is cut "
                "to the run, and the schedule behind it is never reached"
            )
        if self.rate_factor != 1.0:
            notes.append(f"peak rates are {self.rate_factor:.4g} times the recipe's: they follow the batch")
        if self.width_ratio != 1.0:
            notes.append(
                f"the network is {self.width_ratio:.4g} times as wide as that of the recipe's rates (muP): the rate of "
                "its blocks' matrices, the variance that they begin with and logits are divided by that"
            )
        if self.result_weights == "averaged":
            notes.append("validation and the result are of averaged weights, losses of training of the trained ones")
        return notes

    @property
    def batch_sequences(self) -> int:
        """Returns the sequences of one optimizer update, of the largest."""
        return self.sizes.full // self.sequence_tokens

    def tokens_at(self, step: int, passed_over: Sequence[int] = ()) -> int:
        """Returns the tokens of an update, counted from 0; ``passed_over`` are batches that were left out."""
        return self.sizes.at(load(PLACE, kind="data")(step, passed_over) if passed_over else step)

    def sequences(self, step: int, passed_over: Sequence[int] = ()) -> int:
        """Returns the sequences of an update; both as ``tokens_at``."""
        return self.tokens_at(step, passed_over) // self.sequence_tokens

    def tokens(self, steps: int, passed_over: Sequence[int] = ()) -> int:
        """Returns the tokens of so many updates."""
        if not passed_over:
            return self.sizes.tokens(steps)
        number = load(PLACE, kind="data")(steps, passed_over)
        return self.sizes.tokens(number) - sum(self.sizes.at(each) for each in passed_over if each < number)
