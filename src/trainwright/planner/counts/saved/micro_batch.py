"""One pass of so many sequences, on one rank: what all counts of saved bytes are given."""

from __future__ import annotations

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.pieces import makes_scores
from trainwright.spec.device import DTYPE_BYTES
from trainwright.spec.workload import DEFAULT_KERNELS, Adapter, ContextWay, KernelChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """One forward and backward pass: so many sequences of so many tokens, in a precision, on a kind of device.

    ``tp`` ranks share it, ``by_tokens`` what is between matrices too; ``cp`` ranks have parts of every sequence.
    ``ep`` ranks divide experts, whose rows are ``load`` times the mean on the fullest of them. With an ``adapter`` all
    else is frozen, and kept in the dtype of products.
    """

    sequences: int
    sequence_tokens: int
    dtype: str
    device_kind: str
    document_masking: bool = False
    compiled: bool = False
    kernels: KernelChoice = DEFAULT_KERNELS
    tp: int = 1
    by_tokens: bool = True
    cp: int = 1
    context: ContextWay = "gather"
    ep: int = 1
    load: float = 1.0
    adapter: Adapter | None = None

    @property
    def tokens(self) -> int:
        """Returns the number of rows of every matrix product: those of a rank."""
        return self.sequences * self.sequence_tokens // self.cp

    @property
    def gathers(self) -> bool:
        """Returns True where a rank has the keys and values of all ranks, and its own queries."""
        return self.cp > 1 and self.context == "gather"

    @property
    def seen(self) -> float:
        """Returns the share of all keys that a rank's queries are mixed with, in stretches that end with the queries.

        Of ``2 cp`` stretches rank r has those of the numbers r and 2 cp - 1 - r, counted from 0.
        """
        return (2 * self.cp + 1) / (4 * self.cp) if self.gathers else 1.0

    @property
    def stream_tokens(self) -> int:
        """Returns the tokens between matrices: a rank's own with sequence parallelism."""
        return self.tokens // (self.tp if self.by_tokens else 1)

    def keeps_input_of(self, *names: str) -> bool:
        """Returns whether what these matrices are given is kept: one of them is trained, or has factors beside it."""
        return self.adapter is None or not set(names).isdisjoint(self.adapter.targets)

    @property
    def element_bytes(self) -> int:
        """Returns the bytes of one activation."""
        return DTYPE_BYTES[self.dtype]

    @property
    def makes_scores(self) -> bool:
        """Returns True where attention makes the whole matrix of scores."""
        return makes_scores(self.kernels.attention, device_kind=self.device_kind, sequence_tokens=self.sequence_tokens)
