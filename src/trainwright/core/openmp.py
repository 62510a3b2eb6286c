"""How long OpenMP threads spin before they sleep: torch's CPU kernels meet at a barrier thousands of times a second."""

from __future__ import annotations

from collections.abc import MutableMapping

SPIN_COUNT = "1000"
"""Some microseconds of GNU OpenMP's waiting loop; its own default spins for milliseconds."""


def wait_briefly(environ: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep soon, unless the user has said otherwise; works only before torch is imported.

    A thread that spins uses up its share of a core, so that beside any other busy process the scheduler lets the
    thread it waits for wait in turn. One busy process beside training on two cores then costs a factor of forty
    instead of two (``benchmarks/openmp_wait.py``).
    """
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
