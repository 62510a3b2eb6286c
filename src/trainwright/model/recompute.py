"""Selective recomputation: of a block the results of matrix products and of fused attention are kept, and no more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

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

_HOOKS = "respect_saved_tensors_hooks"
_UNSEEN = {_HOOKS: False} if _HOOKS in signature(checkpoint).parameters else {}
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def options_of(block: nn.Module) -> dict[str, Any]:
    """Returns what ``torch.utils.checkpoint`` takes to keep a block's products alone.

    What is kept is seen by no hook of saved tensors, which torch asks to be said since 2.14. The result of the last
    product is added to the residual stream, or is a router's, and nothing that is computed again reads it: the modules
    say by ``products`` how many they make. Experts' products, in groups, are made again.
    """
    products = sum(getattr(module, "products", 0) for module in block.modules())
    return {"context_fn": partial(_contexts, products), **_UNSEEN}


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
