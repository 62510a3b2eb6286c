"""Selective recomputation: of a block the results of matrix products and of fused attention are kept, and no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from trainwright.model.layers import Linear

_ATEN: Any = torch.ops.aten
_PRODUCTS = frozenset({_ATEN.mm.default, _ATEN.addmm.default})
# Whole scores are products of batches (bmm): they are the larger part of what is kept, and are made again.
_ATTENTION = frozenset(
    {
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001  # torch's own names
        _ATEN._scaled_dot_product_flash_attention.default,  # noqa: SLF001
        _ATEN._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
        _ATEN._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    }
)

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def contexts_of(block: nn.Module) -> Callable[[], Contexts]:
    """Returns what ``torch.utils.checkpoint`` takes as ``context_fn`` to keep a block's products alone.

    The result of the last product is added to the residual stream, and nothing that is computed again reads it.
    """
    products = sum(isinstance(module, Linear) for module in block.modules())
    return partial(_contexts, products)


def _contexts(products: int) -> Contexts:
    seen = {False: 0, True: 0}

    def policy(context: Any, operation: Any, *args: Any, **settings: Any) -> CheckpointPolicy:
        del args, settings
        if operation in _PRODUCTS:
            seen[context.is_recompute] += 1
            keep = seen[context.is_recompute] < products
        else:
            keep = operation in _ATTENTION
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts: Contexts = create_selective_checkpoint_contexts(policy)
    return contexts
