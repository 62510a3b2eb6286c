"""Which of several ranks writes which piece of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from trainwright.stages.train.saving.pieces import Claim
from trainwright.stages.train.world import World


class Owners:
    """Who writes what, as all ranks know it; they are asked again only where one of them holds other pieces."""

    def __init__(self) -> None:
        self._held: list[Claim] | None = None
        self._written: frozenset[Claim] = frozenset()

    def written(self, held: list[Claim], world: World) -> frozenset[Claim]:
        """Returns which of the pieces that this rank holds it writes; all ranks must ask together."""
        if not all(world.gathered(held == self._held)):
            chosen = owners(world.gathered(held))
            self._held, self._written = held, frozenset(claim for claim in held if chosen[claim] == world.rank)
        return self._written


def owners(claims: Sequence[Sequence[Claim]]) -> dict[Claim, int]:
    """Returns the rank that writes each piece, from what each rank holds: one of them, each with about as many bytes.

    Raises:
        ValueError: the pieces of a tensor do not make the whole one; names it.
    """
    holders: dict[Claim, list[int]] = {}
    for rank, theirs in enumerate(claims):
        for claim in theirs:
            holders.setdefault(claim, []).append(rank)
    held: dict[tuple[str, str], int] = {}
    for claim in holders:
        held[claim.kind, claim.name] = held.get((claim.kind, claim.name), 0) + prod(claim.shape)
    for claim in holders:
        if held[claim.kind, claim.name] != prod(claim.whole):
            raise ValueError(f"the ranks' pieces of {claim.name} do not make a tensor of shape {claim.whole}")
    load, chosen = [0] * len(claims), {}
    for claim in sorted(holders, key=lambda each: (-each.size_bytes, each)):
        rank = min(holders[claim], key=lambda each: (load[each], each))
        load[rank] += claim.size_bytes
        chosen[claim] = rank
    return chosen
