"""``Cut``: which part of a parameter each rank along an axis keeps, and how its parts come together again.

The axis is ``tp`` for matrices that ranks multiply together, ``ep`` for experts that each of them has some of.

A cut parameter is a plain tensor of its part's shape, which data-parallel ranks may share in turn; its whole shape is
known to the cut alone, which stands beside the parameter (``mark``, ``cut_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from trainwright.runtime.collectives import gathered

_NAME = "cut"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """One parameter's parts.

    Attributes:
        group: the ranks along the axis.
        rank: this one's place among them.
        whole: shape of the whole parameter.
        dim: along which it is cut.
        parts: what of that dim each rank has; ranks with the same part keep copies of it.
        summed: gradients of copies are different parts of one gradient, and are added up.
    """

    group: ProcessGroup
    rank: int
    whole: torch.Size
    dim: int
    parts: tuple[range, ...]
    summed: bool = False

    @property
    def shape(self) -> torch.Size:
        """Returns the shape of this rank's part."""
        return torch.Size((*self.whole[: self.dim], len(self.parts[self.rank]), *self.whole[self.dim + 1 :]))

    def take(self, value: Tensor) -> Tensor:
        """Returns this rank's part of a whole tensor, in memory of its own."""
        here = self.parts[self.rank]
        return value.narrow(self.dim, here.start, len(here)).clone(memory_format=torch.contiguous_format)

    def gather(self, part: Tensor) -> Tensor:
        """Returns the whole tensor; all ranks along the axis call it together."""
        sizes = [len(each) for each in self.parts]
        if len(set(self.parts)) == 1 and sizes[0] == self.whole[self.dim]:
            return part
        lines = part.transpose(0, self.dim).contiguous()
        missing = max(sizes) - sizes[self.rank]
        if missing:
            lines = torch.cat([lines, lines.new_zeros(missing, *lines.shape[1:])])
        found = gathered(lines, len(sizes), self.group.group_name).chunk(len(sizes))
        # Of copies the first one stands for all.
        owners = {each: rank for rank, each in reversed(list(enumerate(self.parts)))}
        pieces = [found[owners[each]][: len(each)] for each in sorted(owners, key=lambda each: each.start)]
        return torch.cat(pieces).transpose(0, self.dim).contiguous()


def mark(parameter: Tensor, cut: Cut) -> None:
    """Lets a parameter know its cut."""
    vars(parameter)[_NAME] = cut


def mark_all(network: nn.Module, cuts: Mapping[str, Cut]) -> None:
    """Lets the parameters of a network that are cut know it; ``cuts`` are of their names."""
    for name, parameter in network.named_parameters():
        if name in cuts:
            mark(parameter, cuts[name])


def cut_of(parameter: Tensor) -> Cut | None:
    """Returns the cut of a parameter; None where this rank has all of it."""
    found: Cut | None = vars(parameter).get(_NAME)
    return found


def whole_shape(parameter: Tensor) -> torch.Size:
    """Returns the shape of the whole parameter."""
    cut = cut_of(parameter)
    return parameter.shape if cut is None else cut.whole
