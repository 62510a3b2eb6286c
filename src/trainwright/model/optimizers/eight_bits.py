"""AdamW with moments in eight bits: a code for each number, and one fp32 scale for 256 of them.

Codes are places in a table of 255 numbers from -1 to 1 (squares: from 0), evenly spaced within each power of ten and
half as many in each lower one: dynamic quantisation in blocks (Dettmers et al., 2022, arXiv 2110.02861, section 2). A
number becomes one of its two neighbours at random, so that its expectation is right: small steps are not lost. A square
that is not zero stays above zero, because updates divide by its root. An update is computed in fp32 from the moments as
they are kept.

Blocks lie along the last dim, so that ranks that share the first one have those of one process, and a checkpoint goes
on in another layout. Vectors keep their moments in fp32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainwright.model.dropout import mixed_bits
from trainwright.model.optimizers.adamw import ReducedAdamW, moments_after, move
from trainwright.model.optimizers.base import elements_at_once
from trainwright.runtime.cuts import cut_of
from trainwright.runtime.norms import as_part_of, local
from trainwright.runtime.rng import derive

BLOCK = 256
"""Numbers with one scale."""
DECADES = 7
_WORD = 0xFFFFFFFF


@cache
def table(*, signed: bool) -> Tensor:
    """Returns the 255 numbers that codes stand for, in ascending order."""
    parts = [torch.zeros(1)]
    for decade in range(DECADES):
        cells = 2 ** (DECADES - decade - signed)
        numbers = (0.1 + 0.9 * (torch.arange(cells, dtype=torch.float64) + 1) / cells) * 10.0**-decade
        parts += [numbers, -numbers] if signed else [numbers]
    return torch.cat(parts).sort().values.float()


def encoded(values: Tensor, key: int, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Returns codes [rows, columns] and scales [rows, blocks] of fp32 numbers [rows, columns].

    Args:
        values: what is kept.
        key: 64 bits that decide, with an element's place, which neighbour it becomes.
        signed: numbers of both signs; else none is below zero.
    """
    rows, columns = values.shape
    blocks = F.pad(values, (0, -columns % BLOCK)).reshape(rows, -1, BLOCK)
    scales = blocks.abs().amax(dim=2)
    shares = blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)[..., None]
    numbers = table(signed=signed).to(values.device)
    above = torch.searchsorted(numbers, shares).clamp_(1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    places = torch.arange(shares.numel(), device=values.device).reshape(shares.shape)
    chance = (mixed_bits(places ^ (key & _WORD), key >> 32 & _WORD) & 0xFFFFFF).float() / 2**24
    code = above - 1 + (shares - low > chance * (high - low))
    if not signed:
        code = torch.where(shares > 0, code.clamp_min(1), code)
    return code.reshape(rows, -1)[:, :columns].to(torch.uint8), scales


def decoded(codes: Tensor, scales: Tensor, *, signed: bool) -> Tensor:
    """Returns the fp32 numbers [rows, columns] that codes and scales stand for."""
    numbers = table(signed=signed).to(codes.device)[codes.int()]
    return numbers * scales.repeat_interleave(BLOCK, dim=1)[:, : codes.shape[1]]


class EightBitAdamW(ReducedAdamW):
    """AdamW whose state is ``exp_avg`` and ``exp_avg_sq`` as codes with ``..._scale``, and ``step``."""

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place."""
        state, flat = self.state[parameter], parameter.ndim == 1
        if not state:
            state["step"] = torch.zeros(())
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.float32 if flat else torch.uint8)
                if not flat:
                    state[f"{name}_scale"] = scales_of(parameter)
        state["step"] += 1
        steps = int(state["step"])
        weight, grad = local(parameter.detach()), local(grad_of)
        kept = {name: local(tensor) for name, tensor in state.items() if name != "step"}
        if flat:
            average, squares = moments_after(kept["exp_avg"], kept["exp_avg_sq"], grad, group["betas"])
            move(weight, average, squares, group, steps)
            kept["exp_avg"].copy_(average)
            kept["exp_avg_sq"].copy_(squares)
            return
        rows = max(1, elements_at_once(weight) // weight.shape[1])
        for start in range(0, weight.shape[0], rows):
            part = slice(start, start + rows)
            mean, square = (
                decoded(kept[name][part], kept[f"{name}_scale"][part], signed=signed) for name, signed in _SIGNED
            )
            average, squares = moments_after(mean, square, grad[part], group["betas"])
            move(weight[part], average, squares, group, steps)
            for (name, signed), values in zip(_SIGNED, (average, squares), strict=True):
                codes, scales = encoded(values, derive(number, steps, start, signed), signed=signed)
                kept[name][part] = codes
                kept[f"{name}_scale"][part] = scales


_SIGNED = (("exp_avg", True), ("exp_avg_sq", False))


def scales_of(parameter: Tensor) -> Tensor:
    """Returns zeros for the scales of a matrix, laid out over the ranks as it is.

    Raises:
        ValueError: ranks share its columns, and cut blocks; or it is a part of a cut matrix.
    """
    if cut_of(parameter) is not None:
        raise ValueError("a part of a matrix has no scales of its own: a checkpoint could not make them whole")
    part = local(parameter)
    zeros = part.new_zeros(part.shape[0], -(-part.shape[1] // BLOCK), dtype=torch.float32)
    if not isinstance(parameter, DTensor):
        return zeros
    columns = parameter.shape[1] // part.shape[1] if part.shape[1] else 1
    if columns > 1 and part.shape[1] % BLOCK:
        raise ValueError(f"ranks have {part.shape[1]} columns each, no multiple of the {BLOCK} that one scale is for")
    blocks = -(-parameter.shape[1] // BLOCK)
    return as_part_of(parameter, zeros, (parameter.shape[0], blocks))
