"""What of ``train.exec`` has no effect where several commands train together, and what does it there."""

from __future__ import annotations

from trainwright.core.place import Place
from trainwright.spec.sections.train import TrainExec

WATCHED = ("max_restarts", "elastic", "on_oom", "hang_after")
"""Keys that need a process which starts the ranks and outlives them: ``slow_factor`` is the ranks' own."""


def unheeded(place: Place, how: TrainExec) -> str | None:
    """Returns a line about the keys that a recipe sets in vain; None where there are none.

    Args:
        place: of this command.
        how: the recipe's.
    """
    if not place.trains:
        return None
    keys = [key for key in WATCHED if key in how.model_fields_set and getattr(how, key) != _default(key)]
    if not keys:
        return None
    again = (
        f"torchrun --max-restarts {max(1, how.max_restarts)}" if place.launcher == "torchrun" else "sbatch --requeue"
    )
    instead = {
        "max_restarts": f"{again} begins again from the last checkpoint",
        "elastic": "start the same command with a smaller train.exec.layout",
        "on_oom": "the message of out of memory says what to set",
        "hang_after": "a rank that hangs ends the others when their collective is 10 min old",
    }
    set_here = ", ".join(f"train.exec.{key}" for key in keys)
    do = "does" if len(keys) == 1 else "do"
    return f"{place.launcher} starts the ranks, so that {set_here} {do} nothing: {'; '.join(instead[k] for k in keys)}"


def _default(key: str) -> object:
    return TrainExec.model_fields[key].default
