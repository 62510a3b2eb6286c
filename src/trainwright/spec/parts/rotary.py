"""``RopeScaling``: rotary frequencies that are changed so that a model sees more tokens than it was trained with."""

from __future__ import annotations

from typing import Literal

from trainwright.core.frozen import dataclass

RopeKind = Literal["linear", "dynamic", "yarn", "llama3", "longrope"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeScaling:
    """How frequencies differ from base^(-2i/d).

    ``linear`` divides all of them by ``factor`` (position interpolation: Chen et al., 2023, arXiv 2306.15595);
    ``dynamic`` changes the base for sequences beyond ``ModelSpec.context_tokens``, which no sequence is here, and so
    nothing; ``yarn`` divides those that turn fewer than ``slow_turns`` times in ``original_tokens``, keeps those that
    turn more than ``fast_turns`` times, and goes from one to the other between (Peng et al., 2023, arXiv 2309.00071,
    section 3.2); ``llama3`` does the like with bounds of its own, the same two names (Grattafiori et al., 2024, arXiv
    2407.21783); ``longrope`` divides each frequency by a factor of its own, one of ``short_factors`` in sequences of at
    most ``original_tokens``, else one of ``long_factors`` (Ding et al., 2024, arXiv 2402.13753). ``attention_factor``
    multiplies cosines and sines, so that scores change by its square.
    """

    kind: RopeKind
    factor: float = 1.0
    original_tokens: int | None = None
    """Positions that the model was trained with before; for yarn, llama3 and longrope."""
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    truncated: bool = True
    """Whether yarn's bounds are rounded to whole elements."""
    attention_factor: float = 1.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    def problems(self, *, pairs: int) -> tuple[str, ...]:
        """Returns every reason why no positions can be scaled so; ``pairs`` of a head's elements are turned."""
        problems = []
        if self.factor <= 0 or self.attention_factor <= 0:
            problems.append(f"rope_scaling factors must be above 0, seen {self.factor} and {self.attention_factor}")
        if self.kind in ("yarn", "llama3", "longrope"):
            if self.original_tokens is None or self.original_tokens < 1:
                problems.append(f"rope_scaling.original_tokens must be at least 1, seen {self.original_tokens}")
            if not 0 < self.slow_turns < self.fast_turns:
                seen = f"{self.slow_turns} and {self.fast_turns}"
                problems.append(f"rope_scaling.slow_turns must be above 0 and below fast_turns, seen {seen}")
        if self.kind == "longrope":
            problems.extend(
                f"rope_scaling.{name} must be {pairs} positive numbers, seen {getattr(self, name)}"
                for name in ("short_factors", "long_factors")
                if len(getattr(self, name)) != pairs or min(getattr(self, name)) <= 0
            )
        return tuple(problems)
