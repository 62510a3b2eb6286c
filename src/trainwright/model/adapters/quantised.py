"""Frozen matrices in four bits: nf4 with double quantisation, by bitsandbytes (QLoRA).

Dettmers et al., 2023, arXiv 2305.14314, section 3: the elements of a matrix, row by row, are blocks of 64, each with
its largest magnitude as scale; scales, less their mean, are kept in 8 bits, 256 of them under one scale in fp32: 0.516
bytes an element. Values are made of them anew for each product, in its dtype, and never kept.

Shape legend: ``batch`` (any dims), ``inputs``, ``outputs``, ``pairs`` (of elements, two to a byte), ``blocks`` (of 64
elements), ``groups`` (of 256 blocks), ``entries`` (of a table, 256).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from trainwright.core.errors import MissingPackage
from trainwright.model.adapters.linear import AdaptedLinear, Factors, merged_weight
from trainwright.model.layers import Linear
from trainwright.model.network import Network
from trainwright.planner.counts.adapters import places
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.adaptation import LowRank

PACKAGE, EXTRA = "bitsandbytes", "qlora"
FORMAT, BLOCK, GROUP = "nf4", 64, 256
AS_TRANSFORMERS_SAYS = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": FORMAT,
    "bnb_4bit_use_double_quant": True,
}
"""What ``transformers.BitsAndBytesConfig`` calls this format."""


class Packed(NamedTuple):
    """A matrix in nf4 with double quantisation."""

    codes: UInt8[Tensor, "pairs 1"]
    scales: UInt8[Tensor, " blocks"]
    outer: Float[Tensor, " groups"]
    """The scales of the scales."""
    mean: Float[Tensor, ""]
    """Of all scales before they were quantised."""
    table: Float[Tensor, " entries"]
    """What the 8 bits of a scale stand for: the same numbers beside each matrix."""


def pack(weight: Float[Tensor, "outputs inputs"]) -> Packed:
    """Returns a matrix in nf4, of its values in fp32.

    The mean of the scales is taken in fp64: the library's own, in fp32, depends on threads and processor in its last
    digit, and whoever merges adapters must find the very base that they were trained beside.

    Raises:
        MissingPackage: bitsandbytes is not installed.
    """
    library = _library()
    codes, state = library.quantize_4bit(weight.detach().float(), blocksize=BLOCK, quant_type=FORMAT)
    mean = state.absmax.double().mean().float()
    scales, outer = library.quantize_blockwise(state.absmax - mean, blocksize=GROUP)
    return Packed(codes=codes, scales=scales, outer=outer.absmax, mean=mean, table=outer.code)


def unpack(packed: Packed, sizes: torch.Size) -> Float[Tensor, "outputs inputs"]:
    """Returns the values of a matrix of these sizes in fp32; what products take are these, rounded."""
    library = _library()
    state = _state(library.QuantState, packed, sizes, torch.float32)
    values: Tensor = library.dequantize_4bit(packed.codes, state)
    return values


def rounded(weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "outputs inputs"]:
    """Returns what nf4 makes of a matrix, in fp32; on ``meta``, where nothing has values, the matrix itself."""
    return weight if weight.is_meta else unpack(pack(weight), weight.shape)


def quantised_layers(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the names of the layers that are kept in nf4: all linear ones of the blocks, adapted or not."""
    return tuple(path for path, _ in places(spec))


def quantise(network: Network) -> None:
    """Puts the linear layers of a network's blocks into nf4, one after another; their own weights are let go.

    Raises:
        MissingPackage: bitsandbytes is not installed.
    """
    for path in quantised_layers(network.spec):
        layer = network.get_submodule(path)
        assert isinstance(layer, Linear)
        parent, _, leaf = path.rpartition(".")
        setattr(network.get_submodule(parent), leaf, QuantisedLinear(layer))


class QuantisedLinear(AdaptedLinear):
    """An ``AdaptedLinear``, maybe without adapters, whose own matrix is in nf4.

    For the backward pass the base's product keeps the packed matrix alone, and the factors' products the input that the
    layer was given, as beside a whole one.
    """

    codes: Tensor
    scales: Tensor
    outer: Tensor
    mean: Tensor
    table: Tensor

    def __init__(self, base: Linear) -> None:
        nn.Module.__init__(self)
        self.bias = base.bias
        self._sizes = base.weight.shape
        for name, tensor in pack(base.weight)._asdict().items():
            self.register_buffer(name, tensor, persistent=False)
        self._without_adapters()
        self._whole: Tensor | None = None
        # Found once: compiled code cannot import.
        self._multiply: Any = import_module(PACKAGE).matmul_4bit
        self._state_kind: Any = _library().QuantState

    @property
    def sizes(self) -> torch.Size:
        """Returns outputs and inputs."""
        return self._sizes

    @property
    def place(self) -> torch.device:
        """Returns where the matrix lies."""
        return self.codes.device

    def matrix(self) -> Float[Tensor, "outputs inputs"]:
        """Returns the values of the matrix in fp32, without adapters that are merged into it."""
        return unpack(self._packed(), self._sizes)

    def add(self, name: str, how: LowRank, *, magnitude: bool) -> Factors:
        """Adds factors without values under a name, in fp32.

        Raises:
            ValueError: there are some of this name, or lengths of rows are trained, which ask for whole ones.
        """
        if magnitude:
            raise ValueError("lengths of rows are not trained beside matrices in nf4")
        return super().add(name, how, magnitude=magnitude)

    def product(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the base's product, in the dtype of ``x``."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self._whole is not None:
            return F.linear(x, self._whole.to(x.dtype), bias)
        state = _state(self._state_kind, self._packed(), self._sizes, x.dtype)
        result: Tensor = self._multiply(x, self.codes, state, bias=bias)
        return result

    @property
    def merged(self) -> bool:
        """Returns whether the active adapters are merged into the matrix."""
        return self._whole is not None

    @torch.no_grad()
    def merge(self) -> None:
        """Puts the matrix with its active adapters, in fp32, before the packed one, which stays for ``unmerge``."""
        if not self.merged:
            self._whole = merged_weight(self.matrix(), self._acting())

    def unmerge(self) -> None:
        """Lets go of what ``merge`` made."""
        self._whole = None

    def _packed(self) -> Packed:
        return Packed(self.codes, self.scales, self.outer, self.mean, self.table)


def _state(kind: Any, packed: Packed, sizes: torch.Size, dtype: torch.dtype) -> Any:
    """Returns what the library asks for beside the codes; it makes values of them in ``dtype``."""
    outer = kind(packed.outer, code=packed.table, blocksize=GROUP, dtype=torch.float32)
    scales = {"absmax": packed.scales, "offset": packed.mean, "state2": outer}
    return kind(**scales, shape=sizes, blocksize=BLOCK, quant_type=FORMAT, dtype=dtype)


def _library() -> Any:
    if find_spec(PACKAGE) is None:
        raise MissingPackage(PACKAGE, needed_for="train.method.frozen=nf4", extra=EXTRA)
    return import_module(f"{PACKAGE}.functional")
