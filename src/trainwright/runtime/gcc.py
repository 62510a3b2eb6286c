"""Keeps GCC from one wrong optimisation of what ``torch.compile`` writes for a processor.

With AVX-512, GCC 12.2 at ``-O3`` gets tiles of transposed bf16 wrong: gradients of rotated keys were NaN (torch 2.13.0,
2026-12-01). Without its vectoriser of straight-line code they are right. torch turns the one of loops off for a like
reason (pytorch/pytorch#115261): its code has vectors already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch._inductor import cpp_builder

OF_LOOPS, OF_LINES = "fno-tree-loop-vectorize", "fno-tree-slp-vectorize"
FLAGS = "_get_optimization_cflags"
"""Of ``cpp_builder``: what returns the compiler's flags; torch 2.11 to 2.14 have it, and no setting for more flags."""


def keep_exact() -> None:
    """Lets all code that this process compiles from now on be compiled without it; a second call does nothing."""
    made: Callable[..., tuple[list[str], list[str]]] = getattr(cpp_builder, FLAGS)
    if not hasattr(made, "__wrapped__"):
        setattr(cpp_builder, FLAGS, _more(made))


def _more(made: Callable[..., tuple[list[str], list[str]]]) -> Callable[..., tuple[list[str], list[str]]]:
    @wraps(made)
    def flags(*arguments: Any, **options: Any) -> tuple[list[str], list[str]]:
        of_compiler, of_linker = made(*arguments, **options)
        # Where torch turns the other one off the compiler is GCC, which knows both.
        return [*of_compiler, *([OF_LINES] if OF_LOOPS in of_compiler else [])], of_linker

    return flags
