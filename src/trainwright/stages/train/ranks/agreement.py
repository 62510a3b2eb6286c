"""What every rank does after a step must be the same: a clock, or what stops one of them, decides for all."""

from __future__ import annotations

import torch
import torch.distributed as dist

from trainwright.stages.train.stop import ERRORS

_CAUSES = (None, *ERRORS)


class Agreement:
    """Exchanges wishes while a step computes, so that nobody waits for them; they are heard one step later."""

    def __init__(self) -> None:
        self._coming: tuple[torch.Tensor, dist.Work | None] | None = None

    def agreed(self, since_s: float, cause: str | None, *, saved: bool) -> tuple[float, str | None]:
        """Returns what all ranks said at the call before: the longest time, and the last listed cause to stop.

        Every rank calls it once a step; the first call hears nothing. Times that were said before a checkpoint was
        ``saved`` are of the interval that it ended, and count as none.
        """
        heard_s, heard = self._heard()
        # On the CPU whatever the device: reading it then waits for no kernel.
        wishes = torch.tensor([since_s, float(_CAUSES.index(cause))], dtype=torch.float64)
        self._coming = wishes, dist.all_reduce(wishes, dist.ReduceOp.MAX, async_op=True)
        return 0.0 if saved else heard_s, heard

    def _heard(self) -> tuple[float, str | None]:
        if self._coming is None:
            return 0.0, None
        wishes, work = self._coming
        if work is not None:
            work.wait()
        since_s, number = wishes.tolist()
        return since_s, _CAUSES[int(number)]

    def close(self) -> None:
        """Waits for the exchange under way."""
        self._heard()
        self._coming = None
