"""AdamW on everything, or Muon on the blocks' matrices and AdamW on the rest."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from trainwright.model.muon import Muon
from trainwright.spec.recipe import OptimizerSection

EMBEDDINGS = ("embedding", "positions")
"""Parameters that are looked up by row: most rows get no gradient in a step, so they bear a higher rate."""


class Optimizers:
    """One or two torch optimizers that step together and whose state has stable names.

    State is exposed as flat tensors, ``<parameter name>.<state name>``, so that a checkpoint is a safetensors file.
    """

    def __init__(self, model: nn.Module, section: OptimizerSection) -> None:
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        matrices: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if section.name == "muon" and parameter.ndim == 2 and name.startswith("blocks."):
                matrices.append(parameter)
                continue
            lr = section.lr if section.embedding_lr is None or name not in EMBEDDINGS else section.embedding_lr
            decay = section.weight_decay if parameter.ndim == 2 else 0.0
            groups.setdefault((lr, decay), []).append(parameter)
        rest = [{"params": params, "peak_lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()]
        self.members: list[Optimizer] = [
            AdamW(rest, lr=section.lr, betas=section.betas, eps=section.epsilon, fused=True)
        ]
        if matrices:
            chosen = [{"params": matrices, "peak_lr": section.muon_lr}]
            decay, momentum = section.muon_weight_decay, section.muon_momentum
            self.members.append(Muon(chosen, lr=section.muon_lr, weight_decay=decay, momentum=momentum))

    def step(self, share: float) -> None:
        """Update every parameter with ``share`` of its group's peak learning rate."""
        for optimizer in self.members:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * share
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop every gradient."""
        for optimizer in self.members:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every state tensor with its name."""
        for optimizer in self.members:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    yield f"{self._names[parameter]}.{key}", value

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over state tensors by name.

        Raises:
            KeyError: a parameter has no state in ``tensors``; names it.
        """
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            parameter, _, key = name.rpartition(".")
            by_parameter.setdefault(parameter, {})[key] = tensor
        for optimizer in self.members:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    found = by_parameter[self._names[parameter]]
                    optimizer.state[parameter] = {
                        key: value if key == "step" else value.to(parameter.device) for key, value in found.items()
                    }


def clip(parameters: list[nn.Parameter], largest: float | None) -> Tensor:
    """Scale all gradients so that their joint L2 norm is at most ``largest``; the norm before that."""
    if largest is None:
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return torch.nn.utils.clip_grad_norm_(parameters, largest)
