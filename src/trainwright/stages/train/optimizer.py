"""AdamW on everything, or Muon on the blocks' matrices and AdamW on the rest; both are torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from trainwright.spec.recipe import OptimizerSection


class Optimizers:
    """One or two torch optimizers that step together and whose state has stable names.

    State is exposed as flat tensors, ``<parameter name>.<state name>``, so that a checkpoint is a safetensors file.
    """

    def __init__(self, model: nn.Module, section: OptimizerSection) -> None:
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        matrices = [p for name, p in model.named_parameters() if _is_block_matrix(name, p)]
        muon = matrices if section.name == "muon" else []
        chosen = set(muon)
        rest = [parameter for parameter in self._names if parameter not in chosen]
        decayed = [p for p in rest if p.ndim == 2]
        plain = [p for p in rest if p.ndim != 2]
        groups = [
            {"params": params, "weight_decay": decay}
            for params, decay in ((decayed, section.weight_decay), (plain, 0.0))
            if params
        ]
        self.members: list[tuple[Optimizer, float]] = [
            (AdamW(groups, lr=section.lr, betas=section.betas, eps=section.epsilon, fused=True), section.lr)
        ]
        if muon:
            self.members.append(
                (
                    Muon(muon, lr=section.muon_lr, weight_decay=section.muon_weight_decay, momentum=section.muon_momentum),
                    section.muon_lr,
                )
            )

    def step(self, share: float) -> None:
        """Update every parameter with ``share`` of each peak learning rate."""
        for optimizer, peak in self.members:
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop every gradient."""
        for optimizer, _ in self.members:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every state tensor with its name."""
        for optimizer, _ in self.members:
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
        for optimizer, _ in self.members:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    found = by_parameter[self._names[parameter]]
                    optimizer.state[parameter] = {
                        key: value if key == "step" else value.to(parameter.device) for key, value in found.items()
                    }


def _is_block_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and name.startswith("blocks.")


def clip(parameters: list[nn.Parameter], largest: float | None) -> Tensor:
    """Scale all gradients so that their joint L2 norm is at most ``largest``; the norm before that."""
    if largest is None:
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return torch.nn.utils.clip_grad_norm_(parameters, largest)
