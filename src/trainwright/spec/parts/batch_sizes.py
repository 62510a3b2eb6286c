"""``BatchSizes``: the tokens of each update of a run whose batch may begin small and grow."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPart:
    """So many updates in a row, each of ``batch_tokens``."""

    batch_tokens: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizes:
    """Those of ``ramp`` one after the other, then ``full`` ones to the end of the run; pure functions of the step."""

    full: int
    ramp: tuple[BatchPart, ...] = ()

    @property
    def different(self) -> tuple[int, ...]:
        """Returns each size once, as they come."""
        return tuple(dict.fromkeys((*(part.batch_tokens for part in self.ramp), self.full)))

    def at(self, step: int) -> int:
        """Returns the tokens of an update, counted from 0."""
        for part in self.ramp:
            if step < part.steps:
                return part.batch_tokens
            step -= part.steps
        return self.full

    def parts(self, steps: int) -> Iterator[BatchPart]:
        """Yields how many of a run's first updates have which size, as they come."""
        for part in self.ramp:
            if made := min(steps, part.steps):
                yield BatchPart(batch_tokens=part.batch_tokens, steps=made)
            steps -= made
        if steps:
            yield BatchPart(batch_tokens=self.full, steps=steps)

    def tokens(self, steps: int) -> int:
        """Returns the tokens of a run's first updates."""
        return sum(part.batch_tokens * part.steps for part in self.parts(steps))

    def steps(self, tokens: float) -> int:
        """Returns how many updates from the start have about so many tokens, rounded to whole ones."""
        done = 0
        for part in self.ramp:
            of_part = part.batch_tokens * part.steps
            if tokens < of_part:
                return done + round(tokens / part.batch_tokens)
            done, tokens = done + part.steps, tokens - of_part
        return done + round(tokens / self.full)
