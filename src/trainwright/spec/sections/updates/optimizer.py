"""The keys of ``train.optimizer``: the update rules, and what a plan counts each as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import Section
from trainwright.spec.workload import MomentDtype, OptimizerName, ParallelPlan

OPTIMIZERS: Mapping[str, str] = {
    **{name: f"trainwright.stages.train.optimizer:{name}" for name in ("adamw", "muon")},
    **{name: f"trainwright.model.optimizers.rules:{name}" for name in ("sgd", "adam", "adafactor", "lion")},
    "schedule-free-adamw": "trainwright.model.optimizers.rules:schedule_free_adamw",
}
OPTIMIZER = Extension("optimizer", OPTIMIZERS, Called(arguments=("network", "section")))

_Optimizer = Annotated[str, OPTIMIZER, Field(description="the update rule; muon is for the blocks' matrices")]
Average = Annotated[float, Field(ge=0, lt=1)]
_DECAY = "weight decay of matrices, decoupled; with adam and sgd an L2 penalty (0 by default, as with adafactor)"
_EPSILON = "what is added to the root of the mean square; adafactor: 1e-30, to the square"
_BETAS = "averaging of the gradient and its square (adam and schedule-free-adamw: 0.9, 0.999); lion's 0.9, 0.99"


class GroupSection(Section):
    """Parameters that are updated otherwise than the rest, by their names."""

    match: str = Field(min_length=1, description="pattern of names, with * for any characters: blocks.0.*, *.bias")
    lr: float | str | None = Field(None, description="their peak rate, or x0.1: that share of what they would have")
    weight_decay: float | None = Field(None, ge=0, description="their weight decay")
    frozen: bool = Field(False, description="not trained: no gradient, no state of the optimizer")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if isinstance(self.lr, str) and not self.lr.startswith("x"):
            raise ValueError(f"lr is a number, or a share as x0.1, seen {self.lr!r}")
        try:
            self.peak(1.0)
        except ValueError:
            raise ValueError(f"lr is above zero, as 1e-4 or x0.1, seen {self.lr!r}") from None
        changed = self.lr is not None or self.weight_decay is not None
        if self.frozen == changed:
            raise ValueError(f"{self.match!r} needs lr or weight_decay, or frozen: true and neither")
        return self

    def peak(self, usual: float) -> float:
        """Returns the peak rate of parameters that would have a usual one.

        Raises:
            ValueError: it is no number above zero.
        """
        share = float(self.lr.removeprefix("x")) * usual if isinstance(self.lr, str) else self.lr
        rate = usual if share is None else share
        if not 0 < rate < float("inf"):
            raise ValueError(f"{rate} is no rate")
        return rate


class OptimizerSection(Section):
    """The keys of every optimizer. A plug-in's class of keys derives from it, or from ``AdamWSection``."""

    counted_as: ClassVar[OptimizerName] = "adamw"
    """The optimizer whose memory and time a plan assumes; nobody has measured one of another name than this."""
    needs_whole_matrices: ClassVar[bool] = False
    """Whether an update reads a whole matrix, so that no layout may share the rows of one."""
    averages: ClassVar[bool] = False
    """Whether the result has weights that the optimizer averages itself."""

    name: _Optimizer = "adamw"
    lr: float = Field(3e-4, gt=0, description="peak learning rate; with muon, that of AdamW")
    groups: tuple[GroupSection, ...] = Field((), description="parameters that are updated otherwise; the first match")

    @property
    def counted(self) -> OptimizerName:
        """Returns the optimizer whose memory and time a plan assumes for these keys."""
        return self.counted_as

    @property
    def reduced_moments(self) -> MomentDtype | None:
        """Returns how moments are kept where that is not fp32."""
        return None

    def refusals(self, parallel: ParallelPlan) -> tuple[str, ...]:
        """Returns why a layout cannot update with this optimizer, with what can; empty where it can."""
        if parallel.pp > 1 and any(group.frozen for group in self.groups):
            why = "a stage whose parameters are all frozen has nothing to differentiate"
            return (f"pp={parallel.pp}: {why}; set pp=1, or freeze nothing",)
        if parallel.offload == "optimizer" and self.name != "adamw":
            return (f"offload=optimizer: only AdamW updates on the host, not {self.name}; set offload=none",)
        if self.needs_whole_matrices:
            why = f"{self.name} keeps means over the rows and columns of whole matrices"
            tp = (f"tp={parallel.tp}: {why}; set tp=1",) if parallel.tp > 1 else ()
            zero = f"zero_stage={parallel.zero_stage}: {why}; set zero_stage=0"
            return (*tp, zero) if parallel.zero_stage else tp
        if parallel.tp > 1 and self.reduced_moments == "int8":
            rows = "moments in int8 have one scale for 256 numbers of a whole row"
            return (f"tp={parallel.tp}: {rows}; set tp=1 or train.optimizer.moments=bf16",)
        return ()


class AdamWSection(OptimizerSection):
    """The keys of AdamW, whatever it is used on."""

    embedding_lr: float | None = Field(None, gt=0, description="peak learning rate of the embeddings; default: lr")
    betas: tuple[Average, Average] = Field((0.9, 0.95), description=_BETAS)
    epsilon: float = Field(1e-8, gt=0, description=_EPSILON)
    weight_decay: float = Field(0.1, ge=0, description=_DECAY)


class AdamWAloneSection(AdamWSection):
    """AdamW on everything."""

    moments: MomentDtype = Field("fp32", description="how AdamW's moments are kept between updates")

    @property
    def reduced_moments(self) -> MomentDtype | None:
        """Returns bf16 or int8 where the recipe says so."""
        return None if self.moments == "fp32" else self.moments


class MuonSection(AdamWSection):
    """Muon on the matrices of the blocks and AdamW on the rest."""

    counted_as: ClassVar[OptimizerName] = "muon"

    name: _Optimizer = "muon"
    muon_lr: float = Field(0.02, gt=0, description="peak learning rate of Muon")
    muon_momentum: float = Field(0.95, ge=0, lt=1, description="Muon's Nesterov momentum")
    muon_weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of Muon's matrices")


class AdamSection(AdamWSection):
    """Adam (Kingma and Ba, 2015): its weight decay is a part of the gradient."""

    name: _Optimizer = "adam"
    betas: tuple[Average, Average] = Field((0.9, 0.999), description=_BETAS)
    weight_decay: float = Field(0.0, ge=0, description=_DECAY)


class SgdSection(OptimizerSection):
    """Gradient descent, with momentum as torch has it."""

    counted_as: ClassVar[OptimizerName] = "sgd"

    name: _Optimizer = "sgd"
    momentum: float = Field(0.9, ge=0, lt=1, description="share of the former step in the next; 0: plain descent")
    nesterov: bool = Field(False, description="look ahead by the momentum (Nesterov)")
    weight_decay: float = Field(0.0, ge=0, description=_DECAY)

    @property
    def counted(self) -> OptimizerName:
        """Returns SGD with or without momentum, which is its state."""
        return "sgd" if self.momentum else "plain-sgd"

    @model_validator(mode="after")
    def _looks_ahead_by_something(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov looks ahead by the momentum, and momentum is 0")
        return self


class AdafactorSection(OptimizerSection):
    """Adafactor (Shazeer and Stern, 2018) with a learning rate of the recipe's, and no momentum."""

    counted_as: ClassVar[OptimizerName] = "adafactor"
    needs_whole_matrices: ClassVar[bool] = True

    name: _Optimizer = "adafactor"
    decay_rate: float = Field(
        -0.8, lt=0, description="power of the step by which older squares count: 1 - step^decay_rate of them stays"
    )
    clip_threshold: float = Field(1.0, gt=0, description="largest root mean square of a tensor's update")
    epsilon: float = Field(1e-30, gt=0, description=_EPSILON)
    weight_decay: float = Field(0.0, ge=0, description=_DECAY)


class LionSection(OptimizerSection):
    """Lion (Chen et al., 2023): the sign of a mean of gradients; a third to a tenth of AdamW's rate."""

    counted_as: ClassVar[OptimizerName] = "sgd"

    name: _Optimizer = "lion"
    betas: tuple[Average, Average] = Field((0.9, 0.99), description=_BETAS)
    weight_decay: float = Field(0.1, ge=0, description=_DECAY)


class ScheduleFreeSection(AdamWSection):
    """AdamW that averages its weights in place of a decay of the rate (Defazio et al., 2024)."""

    averages: ClassVar[bool] = True

    name: _Optimizer = "schedule-free-adamw"
    betas: tuple[Annotated[float, Field(gt=0, lt=1)], Average] = Field((0.9, 0.999), description=_BETAS)


OPTIMIZER_KEYS: Mapping[str, type[OptimizerSection]] = {
    "adamw": AdamWAloneSection,
    "muon": MuonSection,
    "sgd": SgdSection,
    "adam": AdamSection,
    "adafactor": AdafactorSection,
    "lion": LionSection,
    "schedule-free-adamw": ScheduleFreeSection,
}
"""The classes of keys beside each name of ours."""
