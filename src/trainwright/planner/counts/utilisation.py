"""Model FLOPs utilisation: the one rule by which plans, training and audits compute it."""

from __future__ import annotations


def utilisation(flops_per_s: float, peak_flops_per_s: float | None) -> float | None:
    """Returns the model FLOPs per second as a share of the device's dense peak (Chowdhery et al., 2022, appendix B).

    Returns:
        None where the peak is unknown, and where it is beaten: a rate that is beaten is no peak, and a share of it
        means nothing.
    """
    if not peak_flops_per_s or flops_per_s > peak_flops_per_s:
        return None
    return flops_per_s / peak_flops_per_s
