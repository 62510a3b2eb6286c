"""``train.loss``: what training adds to a task's loss, and to the gradient of a whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from trainwright.model.network import Network
from trainwright.model.regularisation.tokens import chunk_loss
from trainwright.runtime.norms import local
from trainwright.spec.sections.updates.loss import LossSection


def add_terms(network: Network, section: LossSection) -> list[str]:
    """Lets a whole network, not yet cut, train with these terms; returns what a user should know, a line each."""
    if section.changes_targets:
        network.chunk_loss = partial(
            chunk_loss,
            label_smoothing=section.label_smoothing,
            z_weight=section.z_weight,
            vocabulary=network.spec.classes or network.spec.vocabulary,
        )
    if section.penalises:
        network.penalties = partial(penalise, l1_weight=section.l1_weight, l2_weight=section.l2_weight)
    written = ", ".join(f"{name}={value:g}" for name, value in section.model_dump().items() if value)
    return [f"losses of training are with {written}; those of validation are the task's alone"]


@torch.no_grad()
def penalise(parameters: Mapping[str, nn.Parameter], *, l1_weight: float, l2_weight: float) -> None:
    """Adds to gradients those of ``l1_weight sum |w| + l2_weight / 2 sum w^2`` over the weights of matrices.

    Element by element, after gradients are added up: each rank does it to its own part, and copies stay copies.

    Args:
        parameters: that are trained, by name.
        l1_weight: of absolute values, whose gradient at zero is zero.
        l2_weight: of half the squares.
    """
    for name, parameter in parameters.items():
        if parameter.ndim < 2 or name.endswith("bias"):  # biases of experts lie in one tensor of two dims
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        weight: Tensor = local(parameter)
        gradient = local(parameter.grad)
        if l2_weight:
            gradient.add_(weight, alpha=l2_weight)
        if l1_weight:
            gradient.add_(weight.sign(), alpha=l1_weight)
