"""Where the rows of our matrices lie in Hugging Face's: some families join several matrices, or transpose them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.adapters import places
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.model import ModelSpec

_SHIFT = 1 << 24
"""More rows than any matrix of a block has; what numbers matrices above it and rows below it fits 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of one of our matrices in a module of Hugging Face's, whose weight may be (in, out)."""

    module: str
    rows: Tensor
    outputs: int
    transposed: bool


def rows_of(spec: ModelSpec, paths: Iterable[str], *, where: str) -> dict[str, Rows]:
    """Returns for each of our linear layers the module that has it, and at which rows of its product.

    The family's own ``to_hf`` says it, of one block whose weights are the numbers of their rows.

    Raises:
        RecipeError: the family has no form there, or a layer is none of a block.
    """
    paths = tuple(paths)
    kinds = {path: spec.mixes(int(path.split(".")[1])) for path in paths}
    found = {mixes: _rows_of_block(_one_block(spec, mixes=mixes), where) for mixes in set(kinds.values())}
    return {path: _in_block(found[kinds[path]], path, where) for path in paths}


def _one_block(spec: ModelSpec, *, mixes: bool) -> ModelSpec:
    """Returns a shape of one block, with experts or without, of which a mixture may have both kinds."""
    if spec.experts is None:
        return replace(spec, layers=1)
    dense = () if mixes else (0,)
    return replace(spec, layers=1, experts=replace(spec.experts, dense=dense or None, dense_layers=len(dense)))


def _rows_of_block(one: ModelSpec, where: str) -> dict[str, Rows]:
    matrices = {path: matrix for path, matrix in places(one) if path.startswith("blocks.0.")}
    marked = _numbered({path: (matrix.outputs, matrix.inputs) for path, matrix in matrices.items()}, one)
    theirs: Mapping[str, Tensor] = huggingface_form(one.family, where=where).to_hf(marked, one)
    found: dict[str, Rows] = {}
    for name, values in theirs.items():
        if values.is_meta or not name.endswith(".weight"):
            continue
        transposed = not bool((values == values[:, :1]).all())
        column = values[0] if transposed else values[:, 0]
        for number, path in enumerate(matrices):
            rows = torch.nonzero(column // _SHIFT == number).flatten()
            if len(rows):
                order = torch.argsort(column[rows])
                module = name.removesuffix(".weight")
                found[path] = Rows(module=module, rows=rows[order], outputs=len(column), transposed=transposed)
    return found


def _numbered(shapes: Mapping[str, tuple[int, int]], spec: ModelSpec) -> Mapping[str, Tensor]:
    """Returns marked matrices by the names of their weights; what else is asked for has no values."""
    experts = {f"blocks.0.ffn.{name}" for name in ("gate", "up", "down")} if spec.mixes(0) else set()

    class Marked(dict[str, Tensor]):
        def __missing__(self, name: str) -> Tensor:
            path, _, kind = name.rpartition(".")
            if spec.experts is not None and path in experts:
                inner = spec.experts.ffn_width
                shape = (spec.width, inner) if path.endswith("down") else (inner, spec.width)
                return torch.empty(spec.experts.count, *shape[: 1 if kind == "bias" else 2], device="meta")
            if kind == "bias" and path in shapes:
                return torch.empty(shapes[path][0], device="meta")
            return torch.empty(spec.vocabulary if name == "embedding" else spec.width, spec.width, device="meta")

    marked = Marked()
    for number, (path, (outputs, inputs)) in enumerate(shapes.items()):
        rows = torch.arange(outputs, dtype=torch.int32) + number * _SHIFT
        marked[f"{path}.weight"] = rows.unsqueeze(1).expand(outputs, inputs)
    return marked


def _in_block(found: Mapping[str, Rows], path: str, where: str) -> Rows:
    head, number, rest = path.split(".", 2)
    place = found.get(f"{head}.0.{rest}")
    if place is None:
        raise RecipeError("Hugging Face's form of this family has no such layer", where=where, seen=path)
    return replace(place, module=place.module.replace(".0.", f".{number}.", 1))
