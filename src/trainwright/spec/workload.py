"""``Workload``: the mathematics of a run, with no device in it; ``ParallelPlan``: how devices share it."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from trainwright.core.frozen import dataclass
from trainwright.core.registry import load

if TYPE_CHECKING:
    from trainwright.spec.convnet import ConvNetSpec
    from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes

PROBLEMS = "trainwright.spec.parts.division:problems"
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4"]
"""What matrix products are computed in."""
Recompute = Literal["none", "selective", "full"]
OptimizerName = Literal["adamw", "muon", "adafactor", "sgd", "plain-sgd"]
TIMED_UPDATES: tuple[OptimizerName, ...] = ("adamw", "muon")
"""Those whose updates the doctor times; of the others (``sgd`` has momentum) it knows the bytes they move."""
States = Literal["fp32", "mixed", "pure"]
"""How trained weights are kept. ``fp32``: weights, gradients and moments in fp32, cast where they are used (torch.amp,
FSDP's mixed precision). ``mixed``: weights in the reduced precision, gradients and a master copy in fp32 (Megatron).
``pure``: weights, gradients and moments all in the reduced precision."""
Method = Literal["full", "lora", "qlora"]
MomentDtype = Literal["fp32", "bf16", "int8"]
Frozen = Literal["fp32", "bf16", "int8", "nf4", "int4"]
"""How base weights beside adapters are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """Low-rank adapters (LoRA, Hu et al., 2021) on frozen weights: the matrices named in ``targets`` get ``rank``.

    ``frozen`` is how the base weights are kept; ``parameters`` overrides the count where other adapters than LoRA's
    are trained.
    """

    rank: int
    targets: tuple[str, ...] = ("query", "value")
    frozen: Frozen = "bf16"
    parameters: int | None = None
    experts: bool = True
    """Whether the names mean experts' matrices too, or those of other parts alone."""
    method: str = "lora"
    """How the adapter acts (lora, oft, ia3, ...), which decides what it costs in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFacts:
    """What lengths rest on: ``counted`` in a dataset, else estimated, and None where nothing is known."""

    vocabulary: int
    train_tokens: int | None = None
    train_documents: int | None = None
    validation_tokens: int | None = None
    validation_documents: int | None = None
    counted: bool = False
    labels: tuple[str, ...] = ()  # those that documents are known to have


def windows_per_epoch(tokens: int, sequence_tokens: int) -> int:
    """Returns the sequences of an epoch of a split: one fewer than fit, so that where they begin varies."""
    return max(1, tokens // sequence_tokens - 1)


def recomputed_blocks(budget: float, blocks: int) -> int:
    """Returns how many of so many blocks are recomputed, so that no larger share than ``budget`` keeps everything."""
    return math.ceil(round(blocks * (1.0 - budget), 9))


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is computed: ``steps`` updates over ``batch_tokens`` tokens, in sequences of ``sequence_tokens``.

    Where there is a ``ramp`` its smaller batches come first.
    """

    sequence_tokens: int
    batch_tokens: int
    steps: int
    precision: Precision
    optimizer: OptimizerName
    recompute: Recompute = "none"
    recompute_budget: float = 0.0
    """Share of the blocks that keep all that they save, where the others are recomputed."""
    document_masking: bool = False
    validation_tokens: int = 0
    validations: int = 0
    checkpoints: int = 0
    states: States = "fp32"
    moments: MomentDtype | None = None
    """Dtype of the optimizer's moments where it differs from what ``states`` implies."""
    adapter: Adapter | None = None
    fused_attention: bool = True
    """Scores are never written to memory (FlashAttention, SDPA)."""
    expert_imbalance: float | None = None
    """Load of the fullest expert-parallel rank over the mean; None: what its router's balancing leaves (planner)."""
    fused_loss: bool = False
    """Logits are made in chunks and never kept whole."""
    update_in_backward: bool = False
    """Each tensor is updated as soon as its gradient is there, where a step is one micro batch."""
    paged_moments: bool = False
    """The optimizer's moments are in unified memory, and leave a device that is full (bitsandbytes' PagedAdamW)."""
    activation_offload: bool = False
    """What layers save for the backward pass waits for it in host memory."""
    average_every: int = 0
    """Updates between two moves of an average of the weights, which is kept in fp32; 0: there is none."""
    example_tokens: int | None = None
    """In the mean of an example, each padded to the longest of its micro batch; None: sequences are full."""
    example_spread: float = 0.0
    """Standard deviation of the logarithm of an example's tokens, of which ``sequence_tokens`` are the most."""
    ramp: tuple[BatchPart, ...] = ()

    @property
    def element_bytes(self) -> float:
        """Returns bytes of an activation, and of a weight as it enters a product; fp8's products keep both in bf16."""
        return 4.0 if self.precision in ("fp32", "tf32") else 2.0

    @property
    def total_tokens(self) -> int:
        """Returns tokens seen in training; padding is none of them."""
        if self.ramp:
            return self.sizes.tokens(self.steps) // self.sequence_tokens * self.tokens_per_sequence
        return self.steps * self.step_tokens

    @property
    def sizes(self) -> BatchSizes:
        """Returns the tokens of each update, padding among them."""
        return BatchSizes(full=self.batch_tokens, ramp=self.ramp)

    @property
    def step_tokens(self) -> int:
        """Returns tokens of the largest optimizer update, in the mean; padding is none of them."""
        return self.batch_sequences * self.tokens_per_sequence

    @property
    def tokens_per_sequence(self) -> int:
        """Returns tokens of one sequence, in the mean; padding is none of them."""
        return self.example_tokens or self.sequence_tokens

    @property
    def batch_sequences(self) -> int:
        """Sequences of one optimizer update, of the largest."""
        return self.batch_tokens // self.sequence_tokens

    def recomputed_share(self, blocks: int) -> float:
        """Returns the share of so many blocks that ``recompute`` is for."""
        return recomputed_blocks(self.recompute_budget, blocks) / max(1, blocks)

    def problems(self, model: ModelSpec | ConvNetSpec) -> tuple[str, ...]:
        """Returns every reason why this workload cannot run on ``model``; empty where there is none."""
        problems = []
        if min(self.sequence_tokens, self.batch_tokens, self.steps) < 1:
            return ("sequence_tokens, batch_tokens and steps must all be at least 1",)
        if self.sequence_tokens > model.context_tokens:
            problems.append(
                f"sequence_tokens ({self.sequence_tokens}) exceeds the model's context ({model.context_tokens})"
            )
        if self.batch_tokens % self.sequence_tokens:
            problems.append(
                f"batch_tokens ({self.batch_tokens}) must be a multiple of sequence_tokens ({self.sequence_tokens})"
            )
        if self.expert_imbalance is not None and not 1 <= self.expert_imbalance < math.inf:
            problems.append(f"expert_imbalance must be at least 1, seen {self.expert_imbalance}")
        if self.expert_imbalance is not None and getattr(model, "experts", None) is None:
            problems.append("expert_imbalance is about experts, and this model has none")
        return tuple(problems)


Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"]
Offload = Literal["none", "optimizer", "all", "optimizer-nvme", "all-nvme", "frozen"]
"""What lives in host memory or on its NVMe drives between its uses: optimizer state, or weights and gradients too; or
the frozen weights beside adapters alone."""
ZeroStage = Literal[0, 1, 2, 3]
DATA_AXES = ("dp_replicate", "dp_shard")
"""Ranks along these read other sequences of a batch; copies first, as of them fewer leave every rank its memory."""
ContextWay = Literal["gather", "ulysses"]

AttentionKernel = Literal["auto", "math", "sdpa", "flex", "fa3"]
"""The whole matrix of scores; torch's fused kernel, flex_attention, FlashAttention-3; ``auto``: ``math`` for short
sequences on a CPU, else ``sdpa``."""
MASKED_KERNELS: frozenset[AttentionKernel] = frozenset(("flex", "fa3"))
"""Those that are told which tokens see which, and have no matrix of it."""
UpdateKernel = Literal["fused", "foreach", "loop"]
"""AdamW in one kernel, or an operation at a time: each over all tensors, or all of them over each tensor."""
LossChunk = int | Literal["auto", "whole"]
"""Tokens whose logits exist at a time: so many, a micro batch's, or as many as fill a large cache."""
ReduceDtype = Literal["fp32", "bf16"]
"""What data-parallel ranks add up gradients in, and keep whole ones in between micro batches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelChoice:
    """Which implementation of one and the same arithmetic a training runs; results differ by rounding."""

    attention: AttentionKernel = "auto"
    update: UpdateKernel = "fused"
    loss_chunk_tokens: LossChunk = "auto"
    reduce: ReduceDtype = "fp32"
    pad_vocabulary: int = 1
    """Of the head's rows in products; those beyond the vocabulary are zeros, stored nowhere."""
    cuda_graphs: bool = False
    """Compiled code is launched as recorded graphs."""


DEFAULT_KERNELS = KernelChoice()


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelPlan:
    """How the devices share one step; every axis is a mesh axis.

    ``ep`` divides the experts over ranks that data parallelism (and tensor parallelism) already has; it takes no
    devices of its own. ``zero_stage`` says what ``dp_shard`` and ``cp`` ranks share (Rajbhandari et al., 2020): 0
    nothing, 1 the optimizer's state, 2 gradients too, 3 weights too (FSDP). Where nobody shares it is 0, whatever is
    said.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch_sequences: int = 1
    compile: bool = False
    threads: int | None = None
    deterministic: bool | None = None
    """Deterministic algorithms alone; None: left to whoever trains (``TrainExec.is_deterministic``)."""
    zero_stage: ZeroStage = 3
    sequence_parallel: bool = True
    """Activations between tensor-parallel regions are split over ``tp`` too (Korthikanti et al., 2022)."""
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    """Model chunks on each pipeline rank: more than one interleaves (Narayanan et al., 2021)."""
    offload: Offload = "none"
    context: ContextWay = "gather"
    """What ``cp`` ranks exchange: all gather keys and values, or tokens of all heads for all tokens of some heads."""
    shares: tuple[int, ...] = ()
    """Sequences of a data-parallel place, in proportion, where devices are not equally fast; fewer shares than places
    are those of as many equal groups of neighbours. Empty: all have the same."""

    def __post_init__(self) -> None:
        # The ranks of a bidirectional pipeline share too: two of them have the same stages.
        if self.sharing == 1 and self.schedule != "dualpipe":
            object.__setattr__(self, "zero_stage", 0)

    @property
    def ranks(self) -> int:
        """Returns how many processes train together, one on each device."""
        return self.dp_replicate * self.dp_shard * self.tp * self.pp * self.cp

    @property
    def sharing(self) -> int:
        """Returns how many ranks share weights and states, ``zero_stage`` of them: those of a sequence's parts too."""
        return self.dp_shard * self.cp

    @property
    def of_experts(self) -> tuple[int, int]:
        """Returns how many groups have copies of the same divided experts, and how many ranks of a group share them."""
        apart = min(self.ep, self.dp_shard)
        return self.dp_replicate * apart // self.ep, self.dp_shard // apart

    @property
    def experts_fit(self) -> bool:
        """Returns whether the ranks of ``ep`` are neighbours: it and ``dp_shard`` divide one another, and it all."""
        neighbours = self.dp_shard % self.ep == 0 or self.ep % self.dp_shard == 0
        return neighbours and self.dp_replicate * self.dp_shard % self.ep == 0

    @property
    def unevenness(self) -> float:
        """Returns the largest part of a batch that a data-parallel place has, over an equal one."""
        return max(self.shares) * len(self.shares) / sum(self.shares) if self.shares else 1.0

    def rows(self, sequences: int, place: int) -> range:
        """Returns which sequences of a batch a data-parallel place reads: neighbours, as many as its share says."""
        places = self.dp_replicate * self.dp_shard
        shares = self.shares or (1,)
        each = places // len(shares)  # neighbouring places, as those of one host are, have one share
        ends = [0, *accumulate(share for share in shares for _ in range(each))]
        return range(sequences * ends[place] // ends[-1], sequences * ends[place + 1] // ends[-1])

    def problems(self, model: ModelSpec, workload: Workload, cluster: ClusterSpec) -> tuple[str, ...]:
        """Returns every reason why this layout cannot run, with what is nearest and does; empty where there is none."""
        found: tuple[str, ...] = load(PROBLEMS, kind="layout")(self, model, workload, cluster)
        return found
