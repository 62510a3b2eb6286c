"""``AdaptedLinear``: a frozen matrix with the factors of adapters beside it.

Shape legend: ``batch`` (any dims), ``inputs``, ``outputs``, ``rank``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from trainwright.model.adapters.dropping import product_without
from trainwright.model.dropout import Draw
from trainwright.model.layers import Linear
from trainwright.spec.parts.adaptation import LowRank


class Factors(nn.Module):
    """One adapter beside one matrix: ``scale * b @ a``, and with DoRA the lengths of the rows of the sum."""

    def __init__(self, inputs: int, outputs: int, how: LowRank, *, magnitude: bool) -> None:
        super().__init__()
        self.scale = how.scale
        self.drops: tuple[int, float] | None = None  # the layer's number, and which part of its input training drops
        self.a = nn.Parameter(torch.empty(how.rank, inputs))
        self.b = nn.Parameter(torch.empty(outputs, how.rank))
        self.magnitude = nn.Parameter(torch.empty(outputs)) if magnitude else None

    def added(
        self, x: Float[Tensor, "*batch inputs"], product: Float[Tensor, "*batch outputs"], draw: Draw | None = None
    ) -> Float[Tensor, "*batch outputs"]:
        """Returns the base's product of ``x`` with the factors' added, in its dtype; of ``x`` no copy is saved.

        ``draw`` is of a training pass, which may drop elements of what the factors see.
        """
        a = self.a.to(x.dtype)
        if draw is None or self.drops is None:
            inner = F.linear(x, a)
        else:
            layer, rate = self.drops
            inner = product_without(x, a, draw, layer=layer, rate=rate)
        whole = torch.addmm(product.flatten(0, -2), inner.flatten(0, -2), self.b.to(x.dtype).T, alpha=self.scale)
        return whole.view(product.shape)

    def sum(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "outputs inputs"]:
        """Returns matrix and factors as one matrix, in fp32 or more, with rows as long as they come."""
        exact = torch.promote_types(weight.dtype, torch.float32)
        return weight.to(exact) + self.scale * (self.b.to(exact) @ self.a.to(exact))

    @torch.no_grad()
    def lengths(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, " outputs"]:
        """Returns the lengths of the sum's rows: constants in the gradient (Liu et al., 2024, section 4.3)."""
        return torch.linalg.vector_norm(self.sum(weight), dim=1)

    def stretch(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, " outputs"] | None:
        """Returns what the sum's rows are multiplied by; None where they stay as they are."""
        return None if self.magnitude is None else self.magnitude / self.lengths(weight)

    @torch.no_grad()
    def merged(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "outputs inputs"]:
        """Returns the one matrix that computes the same, in the dtype of ``weight``."""
        stretch = self.stretch(weight)
        whole = self.sum(weight)
        return (whole if stretch is None else stretch.to(whole.dtype).unsqueeze(1) * whole).to(weight.dtype)


class AdaptedLinear(Linear):
    """A ``Linear`` whose own weight is frozen, with adapters by name beside it; the ``active`` ones act.

    What the factors' products need of the input is the tensor that the layer was given: several layers on one input
    share it, and nothing is copied.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    draw: Draw | None = None
    """What the pass under way drops, if it is one that trains: its block says it."""

    def __init__(self, base: Linear) -> None:
        nn.Module.__init__(self)
        self.weight = base.weight
        self.bias = base.bias
        self._before: Tensor | None = None
        self._without_adapters()

    def _without_adapters(self) -> None:
        self.adapters = nn.ModuleDict()
        self._active: tuple[str, ...] = ()

    @property
    def sizes(self) -> torch.Size:
        """Returns outputs and inputs."""
        return self.weight.shape

    @property
    def place(self) -> torch.device:
        """Returns where the matrix lies."""
        return self.weight.device

    def add(self, name: str, how: LowRank, *, magnitude: bool) -> Factors:
        """Adds factors without values under a name; they lie where the weight does, in fp32.

        Raises:
            ValueError: there are some of this name.
        """
        if name in self.adapters:
            raise ValueError(f"there is an adapter {name!r} already")
        outputs, inputs = self.sizes
        with self.place:
            factors = Factors(inputs, outputs, how, magnitude=magnitude)
        self.adapters[name] = factors
        return factors

    @property
    def active(self) -> tuple[str, ...]:
        """Returns the names of the adapters that act."""
        return self._active

    @active.setter
    def active(self, names: tuple[str, ...]) -> None:
        self._active = names
        self.products = 1 + 2 * len(names)

    @property
    def merged(self) -> bool:
        """Returns whether the weight stands for its adapters too."""
        return self._before is not None

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Project the last dim, in the dtype of ``x``."""
        acting = [] if self.merged else self._acting()
        if all(factors.magnitude is None for factors in acting):
            result = self.product(x)
            for factors in acting:
                result = factors.added(x, result, self.draw)
            return result
        product = result = F.linear(x, self.weight.to(x.dtype))
        for factors in acting:
            changed = factors.added(x, product, self.draw)
            stretch = factors.stretch(self.weight)
            if stretch is not None:
                changed = changed * stretch.to(x.dtype)
            # One adapter alone needs no difference, which would lose digits.
            result = changed if len(acting) == 1 else result + (changed - product)
        return result if self.bias is None else result + self.bias.to(x.dtype)

    def product(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the base's product, in the dtype of ``x``."""
        return super().forward(x)

    def _acting(self) -> list[Factors]:
        return [cast("Factors", self.adapters[name]) for name in self.active]

    @torch.no_grad()
    def merge(self) -> None:
        """Puts the active adapters into the weight; the weight before is kept for ``unmerge``."""
        if self.merged:
            return
        self._before = self.weight.detach().clone()
        exact = torch.promote_types(self.weight.dtype, torch.float32)
        self.weight.copy_(merged_weight(self.weight.to(exact), self._acting()))

    @torch.no_grad()
    def unmerge(self) -> None:
        """Puts back the very bits that the weight had before ``merge``."""
        if self._before is not None:
            self.weight.copy_(self._before)
            self._before = None


def merged_weight(
    weight: Float[Tensor, "outputs inputs"], acting: Sequence[Factors]
) -> Float[Tensor, "outputs inputs"]:
    """Returns the one matrix that computes what a matrix does with adapters beside it."""
    if len(acting) == 1:
        return acting[0].merged(weight)
    return weight + sum((factors.merged(weight) - weight for factors in acting), torch.zeros_like(weight))
