"""How long OpenMP threads spin before they sleep: torch's CPU kernels meet at a barrier thousands of times a second."""

from __future__ import annotations

from collections.abc import MutableMapping

SPIN_COUNT = "10000"
"""Rounds of GNU OpenMP's waiting loop, some tens of microseconds; its own default is 300,000."""


def wait_briefly(environ: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep soon, unless the user has said otherwise; works only before torch is imported.

    A thread that spins uses up its share of a core, so that beside other busy processes the scheduler lets the thread
    it waits for wait in turn. Measured on two cores (``benchmarks/openmp_wait.py``): a training step takes 116 to
    120 ms alone either way; beside two busy processes 258 to 431 ms, with the default 350 to 6,443 ms.
    """
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
