"""The update rules, and how their state goes into a checkpoint.

An optimizer is a function of the network and the recipe's section that gives torch optimizers over disjoint parameters;
each group has its peak learning rate in ``peak_lr`` and may say in ``rate`` under which name it is logged. From outside
the project it is ``package.module:function`` in the recipe; ``testing.contract_optimizer`` says what it keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import blaming, instance
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.optimizers.sharing import grouped
from trainwright.spec.sections.updates.optimizer import OPTIMIZER, AdamWSection, MuonSection, OptimizerSection
from trainwright.spec.summary import ParameterGroup
from trainwright.spec.workload import UpdateKernel

KEY = "train.optimizer.name"
MUON, SHARED_MUON = "trainwright.model.muon:Muon", "trainwright.model.optimizers.sharded_muon:ShardedMuon"
GROUPS = "trainwright.model.optimizers.groups"
REDUCED: Mapping[str, str] = {
    "bf16": "trainwright.model.optimizers.adamw:ReducedAdamW",
    "int8": "trainwright.model.optimizers.eight_bits:EightBitAdamW",
}

OptimizerFunction = Callable[[Network, OptimizerSection], Sequence[Optimizer]]


def adamw(network: Network, section: AdamWSection) -> list[Optimizer]:
    """AdamW on everything (Loshchilov and Hutter, 2019); only matrices decay."""
    return _adamw(network, section, list(dict(network.named_parameters())))


def muon(network: Network, section: MuonSection) -> list[Optimizer]:
    """Muon on the network's matrices (Jordan et al., 2024), AdamW on the rest."""
    matrices = {name: each for name, each in network.matrices().items() if each.requires_grad}
    rest = _adamw(network, section, [name for name, _ in network.named_parameters() if name not in matrices])
    if not matrices:
        return rest
    group = {"params": list(matrices.values()), "peak_lr": section.muon_lr, "rate": "train/muon_lr"}
    decay, momentum = section.muon_weight_decay, section.muon_momentum
    shared = any(hasattr(matrix, "device_mesh") or hasattr(matrix, "cut") for matrix in matrices.values())
    make = load(SHARED_MUON if shared else MUON, kind="optimizer")
    return [*rest, make([group], lr=section.muon_lr, weight_decay=decay, momentum=momentum)]


def _adamw(network: Network, section: AdamWSection, names: Sequence[str]) -> list[Optimizer]:
    members = grouped(
        network, names, lr=section.lr, weight_decay=section.weight_decay, embedding_lr=section.embedding_lr
    )
    if not members:
        return []
    settings: dict[str, Any] = {"lr": section.lr, "betas": section.betas, "eps": section.epsilon}
    if section.reduced_moments is None:
        return [AdamW(members, **settings, fused=True)]
    return [load(REDUCED[section.reduced_moments], kind="optimizer")(members, **settings)]


def assigned(network: Network, section: OptimizerSection) -> list[ParameterGroup]:
    """Freezes parameters of a whole network as the recipe says; returns who gets what. Raises as ``freeze``."""
    load(f"{GROUPS}:freeze", kind="group")(network, section.groups)
    rows: list[ParameterGroup] = load(f"{GROUPS}:table", kind="group")(
        network, Optimizers(network, section).members, section.groups
    )
    return rows


def moved(parameter: Tensor, value: Tensor) -> Tensor:
    """Returns a state where its parameter is."""
    return value.to(parameter.device)


class Optimizers:
    """Torch optimizers that step together and whose state has stable names.

    State is exposed as flat tensors, ``<parameter name>.<state name>``, so that a checkpoint is a safetensors file.
    ``kernel`` is that of torch's own optimizers that have several: their groups say ``fused`` and ``foreach``.

    Raises:
        RecipeError: the optimizer cannot be imported, fails, or leaves a parameter out or takes one twice; names it.
    """

    def __init__(self, network: Network, section: OptimizerSection, kernel: UpdateKernel = "fused") -> None:
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in network.trained().items()}
        make: OptimizerFunction = OPTIMIZER.load(section.name)
        with blaming(section.name, where=KEY):
            self.members = [instance(member, Optimizer) for member in make(network, section)]
        for member in self.members:
            others = any(each not in self._names for group in member.param_groups for each in group["params"])
            if section.groups or others:  # frozen ones leave it
                load(f"{GROUPS}:regroup", kind="group")(member, self._names, section.groups)
        if any(parameter not in self._names for group in self._groups() for parameter in group["params"]):
            raise RecipeError("this optimizer updates another tensor too", where=KEY, seen=section.name)
        times = Counter(self._names[parameter] for group in self._groups() for parameter in group["params"])
        for name in self._names.values():
            if times[name] != 1:
                raise RecipeError(
                    "this optimizer updates {name!r} {times} times a step",
                    where=KEY,
                    seen=section.name,
                    expected="every parameter that is trained once",
                    name=name,
                    times=times[name],
                )
        for group in self._groups():
            group.setdefault("peak_lr", group["lr"])
            group.setdefault("rate", "train/lr")
            group.setdefault("place", None)
            if kernel != "fused" and "fused" in group:
                group |= {"fused": False, "foreach": kernel == "foreach"}

    def _groups(self) -> Iterator[dict[str, Any]]:
        return (group for optimizer in self.members for group in optimizer.param_groups)

    @property
    def peak_rates(self) -> Mapping[str, float]:
        """Returns the peak learning rate of each kind of parameters, by the name of the metric that follows it."""
        return {group["rate"]: group["peak_lr"] for group in self._groups()}

    def step(self, share: float) -> None:
        """Update every parameter with ``share`` of its group's peak learning rate."""
        for optimizer in self.members:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * share
            optimizer.step()

    def leave_out(self) -> None:
        """Take in that a step of the run makes no update."""

    def zero_grad(self) -> None:
        """Drop every gradient."""
        for optimizer in self.members:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every state tensor with its name."""
        for optimizer in self.members:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    yield f"{self._names[parameter]}.{key}", value

    def result(self) -> AbstractContextManager[None]:
        """Returns a context within which the network has the weights that are measured and kept; all enter together."""
        return nullcontext()

    @property
    def result_is_average(self) -> bool:
        """Returns whether the weights of ``result`` are an average of those that are trained."""
        return False

    def on_device(self) -> Iterator[Tensor]:
        """Yields the state tensors that take memory of the network's device."""
        return (tensor for _, tensor in self.tensors())

    def load(self, tensors: dict[str, Tensor], part: Callable[[Tensor, Tensor], Tensor] = moved) -> None:
        """Take over state tensors by name; an optimizer without any, such as plain SGD, keeps none.

        Args:
            tensors: whole.
            part: takes a parameter and a tensor; returns what of the tensor lies where the parameter does: all of it.

        Raises:
            KeyError: a parameter has no state in ``tensors``, while another of its optimizer has; names it.
        """
        states: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            parameter_name, _, key = name.rpartition(".")
            states.setdefault(parameter_name, {})[key] = tensor
        for optimizer in self.members:
            members = [(parameter, group) for group in optimizer.param_groups for parameter in group["params"]]
            if not any(self._names[parameter] in states for parameter, _ in members):
                continue
            for parameter, group in members:
                # Kernels that count updates themselves do so where the parameter is, as torch begins to.
                there = parameter.device if group.get("fused") or group.get("capturable") else torch.device("cpu")
                optimizer.state[parameter] = {
                    key: part(parameter, value) if value.ndim else value.to(there)
                    for key, value in states[self._names[parameter]].items()
                }


def clip(parameters: list[nn.Parameter], largest: float | None) -> Tensor:
    """Scale all gradients so that their joint L2 norm is at most ``largest``; the norm before that."""
    if largest is None:
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return torch.nn.utils.clip_grad_norm_(parameters, largest)
