"""What is done after a step beside training: decided in one place, from a step's number, a clock and what asks to stop.

Clock and cause are a process's own, so that processes that train together must follow the decisions of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.spec.sections.train import TrainSection


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """What follows one step.

    Attributes:
        last: the run is complete.
        report: metrics are read and logged.
        validate: the validation split is evaluated.
        checkpoint: the state is saved.
        stop: what ends the run here, one of ``stop.ERRORS``, None where it goes on; a complete run does not stop.
    """

    last: bool
    report: bool
    validate: bool
    checkpoint: bool
    stop: str | None

    @property
    def wait(self) -> bool:
        """Returns whether the checkpoint must be on disk before anything else is done."""
        return self.last or self.stop is not None


def decide(section: TrainSection, *, done: int, steps: int, since_checkpoint_s: float, cause: str | None) -> Decisions:
    """Returns what follows a step.

    Args:
        section: says how often each thing is done.
        done: steps that are complete, this one included.
        steps: of the whole run.
        since_checkpoint_s: seconds since the last checkpoint, or since the start.
        cause: what asks to stop, one of ``stop.ERRORS``, if anything does.
    """
    how, last = section.exec, done == steps
    validate = last or done % section.validation.every_steps == 0
    for_good = how.keep_every_steps > 0 and done % how.keep_every_steps == 0
    checkpoint = last or for_good or cause is not None or 0 < how.checkpoint_every <= since_checkpoint_s
    return Decisions(
        last=last,
        report=validate or checkpoint or done % how.log_every_steps == 0,
        validate=validate,
        checkpoint=checkpoint,
        stop=None if last else cause,
    )
