"""An optimizer that the project does not have."""

from __future__ import annotations

from torch.optim import SGD, Optimizer

from trainwright.model.network import Network
from trainwright.spec.sections.updates.optimizer import OptimizerSection


def momentum(network: Network, section: OptimizerSection) -> list[Optimizer]:
    """Gradient descent with momentum, on everything."""
    return [SGD(network.parameters(), lr=section.lr, momentum=0.5)]
