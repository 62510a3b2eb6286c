"""Which parameters share a rate and a decay, where a recipe says nothing of their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from trainwright.model.network import Network


def grouped(
    network: Network, names: Iterable[str], *, lr: float, weight_decay: float, embedding_lr: float | None = None
) -> list[dict[str, Any]]:
    """Returns groups of those parameters that are trained, as torch's optimizers take them.

    Matrices decay, and tables may have a rate: most rows of one get no gradient in a step, so that it may be higher.
    In a network of another width than its rates are of, the blocks' matrices have a rate of their own, and what it
    takes from a weight by decay stays: their decay is higher as the rate is lower.
    """
    parameters, ratio = network.trained(), network.width_ratio
    tables = network.tables() if embedding_lr is not None else {}
    hidden = network.matrices() if ratio != 1 else {}
    peaks = {"train/lr": lr, "train/embedding_lr": embedding_lr or lr, "train/matrix_lr": lr / ratio}
    groups: dict[tuple[str, float], list[nn.Parameter]] = {}
    for name in names:
        if name not in parameters:
            continue
        rate = "train/embedding_lr" if name in tables else "train/matrix_lr" if name in hidden else "train/lr"
        # Biases of experts lie in one tensor of two dims.
        decay = weight_decay if parameters[name].ndim >= 2 and not name.endswith("bias") else 0.0
        decay = decay * ratio if name in hidden else decay
        groups.setdefault((rate, decay), []).append(parameters[name])
    return [
        {"params": members, "peak_lr": peaks[rate], "rate": rate, "weight_decay": decay}
        for (rate, decay), members in groups.items()
    ]
