"""The optimizers that a recipe names beside AdamW and Muon: which class has which keys."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

from trainwright.model.network import Network
from trainwright.model.optimizers.adafactor import Adafactor
from trainwright.model.optimizers.elementwise import Lion, ScheduleFreeAdamW, Sgd
from trainwright.model.optimizers.sharing import grouped
from trainwright.spec.sections.updates.optimizer import (
    AdafactorSection,
    AdamSection,
    AdamWSection,
    LionSection,
    ScheduleFreeSection,
    SgdSection,
)


def sgd(network: Network, section: SgdSection) -> list[Optimizer]:
    """Gradient descent on everything; only matrices have the L2 penalty."""
    groups = _groups(network, section.lr, section.weight_decay)
    return [Sgd(groups, lr=section.lr, momentum=section.momentum, nesterov=section.nesterov)] if groups else []


def adam(network: Network, section: AdamSection) -> list[Optimizer]:
    """Adam on everything (Kingma and Ba, 2015); only matrices have the L2 penalty."""
    groups = _groups(network, section.lr, section.weight_decay, section.embedding_lr)
    return [torch.optim.Adam(groups, **_adam(section), fused=True)] if groups else []


def adafactor(network: Network, section: AdafactorSection) -> list[Optimizer]:
    """Adafactor on everything; only matrices decay."""
    groups = _groups(network, section.lr, section.weight_decay)
    settings = {"decay_rate": section.decay_rate, "clip_threshold": section.clip_threshold, "eps": section.epsilon}
    return [Adafactor(groups, lr=section.lr, **settings)] if groups else []


def lion(network: Network, section: LionSection) -> list[Optimizer]:
    """Lion on everything; only matrices decay."""
    groups = _groups(network, section.lr, section.weight_decay)
    return [Lion(groups, lr=section.lr, betas=section.betas)] if groups else []


def schedule_free_adamw(network: Network, section: ScheduleFreeSection) -> list[Optimizer]:
    """Schedule-free AdamW on everything; only matrices decay."""
    groups = _groups(network, section.lr, section.weight_decay, section.embedding_lr)
    return [ScheduleFreeAdamW(groups, **_adam(section))] if groups else []


def _adam(section: AdamWSection) -> dict[str, Any]:
    return {"lr": section.lr, "betas": section.betas, "eps": section.epsilon}


def _groups(network: Network, lr: float, decay: float, embedding_lr: float | None = None) -> list[dict[str, Any]]:
    return grouped(network, network.trained(), lr=lr, weight_decay=decay, embedding_lr=embedding_lr)
