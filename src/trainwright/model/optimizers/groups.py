"""Which parameters an optimizer takes, and which of them share a rate and a decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from trainwright.model.network import Network


def grouped(
    network: Network, names: Iterable[str], *, lr: float, weight_decay: float, embedding_lr: float | None = None
) -> list[dict[str, Any]]:
    """Returns groups of parameters, as torch's optimizers take them: matrices decay, and tables may have a rate.

    Most rows of a table get no gradient in a step, so that it may have a higher rate of its own.
    """
    parameters: Mapping[str, nn.Parameter] = dict(network.named_parameters())
    tables = network.tables() if embedding_lr is not None else {}
    peaks = {"train/lr": lr, "train/embedding_lr": embedding_lr or lr}
    groups: dict[tuple[str, float], list[nn.Parameter]] = {}
    for name in names:
        rate = "train/embedding_lr" if name in tables else "train/lr"
        decay = weight_decay if parameters[name].ndim >= 2 else 0.0
        groups.setdefault((rate, decay), []).append(parameters[name])
    return [
        {"params": members, "peak_lr": peaks[rate], "rate": rate, "weight_decay": decay}
        for (rate, decay), members in groups.items()
    ]
