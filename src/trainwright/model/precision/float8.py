"""Matrix products of the blocks in float8: each factor is scaled to its range as it comes, by torchao.

Weights stay fp32, and what goes from layer to layer bf16; embedding, norms and head compute as in bf16. One scale
stands for a whole tensor, made of its largest number (Micikevicius et al., 2022, arXiv 2209.05433).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.model.layers import Linear
from trainwright.model.network import Network

MULTIPLE = 16
"""Kernels multiply matrices whose rows and columns are multiples of it (torch._scaled_mm)."""
Product = Callable[[Tensor, Tensor], Tensor]


class Float8Linear(Linear):
    """A layer whose product, and those of its gradients, have float8 factors."""

    product: Product

    def forward(self, x: Tensor) -> Tensor:
        """Projects the last dim, in the dtype of ``x``; rows that are no multiple of 16, or none, without float8."""
        if not x.numel() or x.shape[:-1].numel() % MULTIPLE:
            return super().forward(x)
        y = self.product(x, self.weight.to(x.dtype).t())
        return y if self.bias is None else y + self.bias.to(x.dtype)


def convert(network: Network) -> int:
    """Lets the layers of blocks multiply in float8; names and parameters stay. Returns how many there are.

    On a processor float8's rounding is computed and its speed is not there.

    Raises:
        RecipeError: no block has a matrix whose sizes are multiples of 16.
    """
    product = _product(emulate=network.device.type == "cpu")
    layers = [
        module
        for module in network.blocks.modules()
        if type(module) is Linear and all(size % MULTIPLE == 0 for size in module.weight.shape)
    ]
    if not layers:
        raise RecipeError(
            "no matrix of this network can be multiplied in float8",
            where="train.precision",
            seen="fp8",
            expected=f"layers whose sizes are multiples of {MULTIPLE}",
            fix="set train.precision=bf16",
        )
    for layer in layers:
        layer.__class__ = Float8Linear
        assert isinstance(layer, Float8Linear)
        layer.product = product
    return len(layers)


def _product(*, emulate: bool) -> Product:
    """Returns torchao's product of an input and a transposed weight, with its gradients."""
    config: Any = import_module("torchao.float8.config").Float8LinearConfig(emulate=emulate)
    tensors: Any = import_module("torchao.float8.float8_training_tensor")
    scaled: Any = import_module("torchao.float8.float8_linear").matmul_with_hp_or_float8_args
    gemms = (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)
    each = (tensors.ScaledMMConfig(emulate, gemm.use_fast_accum, False, config.pad_inner_dim) for gemm in gemms)
    how = tensors.LinearMMConfig(*each)
    return lambda x, weight: scaled.apply(x, weight, how, config)
