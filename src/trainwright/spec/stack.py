"""``Stack``: the software that trains, as a few numbers that say how well it uses a device and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from trainwright.core.frozen import dataclass
from trainwright.spec.device import DeviceKind
from trainwright.spec.workload import Method, MomentDtype, Offload, Precision, Schedule, States, ZeroStage

Selective = Literal["attention", "operations"]
"""What selective recomputation makes again: attention between its products alone (Megatron; Korthikanti et al., 2022,
arXiv 2205.05198, section 5), or all but some operations' results (torchtitan's, and this trainer's)."""
MemoryKind = Literal["allocated", "reserved", "device"]
"""torch's peak of allocated bytes, of reserved bytes, or what the driver reports for the process, context included."""
STASH = 5
"""Saved tensors on their way to host memory that are still on the device, and as many that are fetched before they are
needed (pytorch/torchtune@bd2a0fc7c: torchtune/training/_activation_offloading.py, ``max_fwd_stash_size``; TRL takes the
same, and so does this project's trainer)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackTime:
    """How a stack's step differs from what ``Efficiency`` says of all; fitted to published runs (see ``source``).

    ``compute`` multiplies the time of all kernels, ``attention`` the rate of fused attention, ``traffic`` memory
    traffic between products, ``launch`` the time between kernels; ``tensor`` the exposed share of tensor parallelism's
    communication, and ``sharded`` what FSDP's adds to a step: schedules overlap them more or less. ``tuned`` multiplies
    the time by generation of the device and width of the format (``hopper-fp8``): kernels are tuned for some.
    ``spread`` is the standard deviation of the logarithm of measured over predicted time.
    """

    compute: float = 1.0
    attention: float = 1.0
    traffic: float = 1.0
    launch: float = 1.0
    tensor: float = 1.0
    sharded: float = 1.0
    tuned: Mapping[str, float] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    """Generations of devices that the stack has published runs on."""
    spread: float = 0.3


Fusion = Literal["eager", "fused", "compiled", "own"]
"""How operations between matrix products are run, which says what they keep for the backward pass.

``eager``: one kernel for each line of a model's code, norms in fp32. ``fused``: hand-written norms, activations,
attention and dropout (Transformer Engine, Apex). ``compiled``: fused by a compiler, which keeps products' results and
computes the rest again. ``own``: this project's modules, counted tensor by tensor.
"""


Remade = Literal["norms", "latents", "gates", "results"]
"""What software makes again in the backward pass whatever recomputation a layout chooses: the results of norms; the
queries, keys and values of latent attention, from their latents; the products of gates; the results of experts, which
are not read where the router's weights multiply what the last product reads."""
Flash = Literal["flash-1", "flash-2", "cudnn"]
"""FlashAttention (Dao et al., 2022; Dao, 2023), or cuDNN's kernels, on Hopper as fast as FlashAttention-3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackMemory:
    """What a stack holds beside weights, gradients and moments.

    The first block of fields follows from the stack's code. ``activations``, ``fragmentation``, ``workspace_bytes`` and
    ``spread`` are fitted to published runs (see ``source``).
    """

    reports: MemoryKind = "allocated"
    """What the stack prints as its peak."""
    kernels: Fusion = "eager"
    dropout: bool = False
    """Whether layers without a gate drop out, and keep masks of one byte."""
    logit_bytes: float = 10.0
    """Bytes for one logit at the loss's peak: copies in reduced precision and fp32, and gradients."""
    fused_logit_bytes: float = 2.0
    """The same where the loss is fused (``Workload.fused_loss``)."""
    loss_chunk_tokens: float = 0.0
    """Tokens whose logits are there at once where the loss is fused; 0: all, of ``fused_logit_bytes`` each."""
    loss_head_bytes: float = 0.0
    """Bytes of each of the head's elements that a fused loss copies."""
    hidden_copies: float = 2.0
    """Hidden states beside the logits at that moment."""
    flat_gradients: bool = False
    """Gradients live in one buffer all the time; else they are freed after the update."""
    reduced_gradients: bool = False
    """With ``mixed`` states bf16's gradients stay in bf16; else they are accumulated in fp32. fp16's stay in fp16."""
    master_gradients: bool = False
    """Both kinds of gradients are kept: beside reduced ones an fp32 copy of the rank's share, beside fp32 ones those in
    bf16 that they are accumulated from (DeepSpeed)."""
    holds_outputs: bool = False
    """A pipeline stage keeps each micro batch's output until its backward pass, and the last stage the logits of two
    (DeepSpeed's pipeline engine)."""
    remade: tuple[Remade, ...] = ()
    """Never kept for the backward pass."""
    narrow_inputs: bool = False
    """In eight bits products keep their inputs in these, gates too, and what attention returns in twelve."""
    narrow_copy_bytes: float = 2.0
    """Bytes of each weight's copies for products in fp8: as it is and transposed (Transformer Engine), or one of them
    where its scales are of square blocks."""
    saves_gathered: bool = False
    """Products of tensor parallelism keep their input as it was gathered, not their share of it."""
    adapter_residuals: float = 1.0
    """Layer inputs that full recomputation keeps where FSDP wraps adapters."""
    quantised_inputs: bool = False
    """Products with quantised weights keep their inputs (bitsandbytes before 0.43)."""
    quantised_fp32: bool = False
    """Norms beside bitsandbytes' weights that no ranks share are in fp32, and so is what its products return."""
    loads_whole: bool = False
    """Fine-tuning loads all weights on each device before it shards them."""
    bucket_elements: float = 0.0
    """Elements of the buffers in which gradients are reduced and weights gathered, one of each (DeepSpeed: 5e8)."""
    reduce_copies: float = 0.0
    """Copies of the gradients, as they are kept, in buckets of the data-parallel reduction of whole gradients."""
    update_copies: float = 1.0
    """Copies of a parameter that the update makes of all parameters at once (torch's foreach AdamW: one)."""
    fused_queries: bool = False
    """Queries, keys and values are one product, whose adapters keep one input."""
    repeats_keys: bool = False
    """Grouped keys and values are repeated to one for each query head."""
    double_quantised: bool = False
    """nf4's scales are quantised too."""
    quantised_experts: bool = False
    """bitsandbytes' weights are experts too; else those of a layer are one parameter, which stays in 16 bits."""
    adapter_bytes: float = 4.0
    """Bytes of an adapter's element, its gradient, and each moment."""
    adapter_input_bytes: float = 2.0
    """Bytes of the input that each adapter keeps for itself: 4 where it is cast to fp32, 0 where it is shared."""
    activations: float = 1.0
    """Multiplies counted activations."""
    fragmentation: float = 0.1
    """Reserved over allocated bytes, less one, and less what ``idle`` says."""
    idle: float = 0.5
    """Of the blocks that another moment of the step needs (logits, or one layer's inner tensors), the share that the
    allocator cannot use again at the peak."""
    workspace_bytes: float = 0.1e9
    """Libraries' workspaces, inside what torch counts as allocated."""
    context_bytes: float = 0.6e9
    """The driver's context and the communicators' buffers, outside of it."""
    spread: float = 0.1
    """Standard deviation of the logarithm of measured over predicted peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatch:
    """How tokens are sent to the experts of other ranks, and their results back.

    Plain all-to-all: a copy for each of a token's experts. ``hierarchical``: one for each node over the network, from
    there one for each rank over the links inside (DeepEP; DeepSeek-V3, arXiv 2412.19437, section 3.2.2). ``fp8``: with
    fp8 products what goes to experts is fp8, what comes back stays in 16 bits (section 3.3.3).
    """

    hierarchical: bool = False
    fp8: bool = False
    processors: int = 0
    """Streaming multiprocessors that sending keeps from computing while both run."""
    source: str = ""


Axis = Literal["dp_replicate", "dp_shard", "tp", "pp", "cp", "ep"]
"""A way to divide a step over devices, as ``ParallelPlan`` names it."""


Switch = Literal["paged_moments", "int8_moments", "activation_offload", "update_in_backward", "packing", "padding"]
"""A way to tune that software has or lacks; ``padding``: examples that are not packed, but padded."""


ModelPart = Literal["experts", "latent", "sinks", "encoder", "vision", "convolutions", "fp8"]
"""What a model has that software may not divide: the kind of its network, unless that is a decoder,
and products in fp8 among it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """What a stack runs, as its code says; what is empty is not limited."""

    families: tuple[str, ...] = ()
    """Of models (``ModelSpec.family``)."""
    devices: tuple[DeviceKind, ...] = ()
    axes: Mapping[Method, tuple[Axis, ...]] = field(default_factory=dict)
    """The methods that it has, each with the axes that it divides such a run by."""
    of_models: Mapping[ModelPart, tuple[Axis, ...]] = field(default_factory=dict)
    """The axes by which models with such a part are divided; what is not among them limits nothing."""
    tuned: tuple[Axis, ...] = ()
    """The axes by which tuning all weights is divided, unless nothing else fits or others are asked for; empty: all of
    ``axes``."""
    zero_stages: tuple[ZeroStage, ...] = (0, 1, 2, 3)
    """What its data-parallel ranks can share."""
    stages_with: Mapping[Axis | Offload, tuple[ZeroStage, ...]] = field(default_factory=dict)
    """The same in runs that are divided by an axis, or offload so; what is not among them limits nothing."""
    precisions: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
    """Where none is asked for, the first that the device has a rate for."""
    switches: Mapping[Switch, str] | None = None
    """Those that it has, each with the file and line that has it; None: not known."""
    offloads: Mapping[Offload, str] | None = None
    """What of the states it can keep off the device, the same way; empty: nothing."""
    refuses: str = ""
    """``package.module:function`` of a run that gives what says why a layout is not executed; empty: nothing does."""
    source: str = ""


Habit = Literal[
    "recompute",
    "packing",
    "offload",
    "activation_offload",
    "zero_stage",
    "micro_batch",
    "batch",
    "update_in_backward",
    "paged_moments",
    "moments",
]
"""What software does by itself unless its user says something else, as fields of a question and of a layout name it.

``zero_stage`` is what all data-parallel ranks share, ``micro_batch`` and ``batch`` count sequences.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usual:
    """What a stack does of a habit by default, and the file and line that say it.

    ``where`` is ``tuned_shards`` of what it does in tuning alone, where ranks share weights, and ``alone`` of what it
    does on one device. ``from_tokens`` are those of the shortest sequences that it does it for.
    """

    value: str
    source: str
    where: Literal["everywhere", "tuned_shards", "alone"] = "everywhere"
    methods: tuple[Method, ...] = ()
    """In which it does so; empty: in all."""
    from_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A training framework in one of its usual configurations.

    ``aliases`` are names by which published tables call it; ``states`` how it keeps trained weights by default.
    """

    name: str
    title: str
    states: States
    precision: Precision = "bf16"
    """Of its products, where a source does not say."""
    sequence_parallel: bool = True
    """Whether tensor parallelism splits activations between its regions too, where a source does not say."""
    undivided: str = ""
    """File and line by which it divides neither tensors nor layers unless its user says so; empty: a user must say."""
    chunked_loss: bool | None = None
    """Whether logits are made in chunks (``Workload.fused_loss``) unless that is said; None: in tuning alone."""
    moments: MomentDtype | None = None
    """Of AdamW in tuning, where nobody says it; None: as ``states`` has them."""
    fused_attention: bool = True
    """Whether scores stay out of memory, where a source does not say."""
    flash: Flash = "flash-2"
    """Whose fused attention it calls."""
    selective: Selective = "operations"
    update_bytes: float = 28.0
    """What AdamW moves for a parameter in fp32: 28 in one fused kernel, 80 operation by operation."""
    full_update_bytes: float | None = None
    """The same where products are in full precision too, if it is another optimizer then."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """What its data-parallel ranks share, where a source does not say (``ParallelPlan.zero_stage``)."""
    overlaps_gradients: bool = True
    """Whether data-parallel ranks exchange gradients while the backward pass makes others."""
    fused_adapters: bool = False
    """Whether an adapter's second product scales and adds its result itself."""
    overlaps_shards: bool = True
    """Whether ZeRO-3 gathers weights and scatters gradients while kernels run."""
    schedules: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved")
    """The pipeline schedules that it has; software that no one has is not held to them where one is asked for."""
    aliases: tuple[str, ...] = ()
    since: str = ""
    """The first release that these numbers hold for; of several files the latest that a run's release has reached."""
    follows: str = ""
    """The stack of the release before, whose numbers of time these were fitted from."""
    words: tuple[str, ...] = ()
    """Parts of names that no file lists, by which a framework is taken for one of this kind."""
    marks: tuple[str, ...] = ()
    """Words in a published row's settings, one of which must stand there."""
    runs: Support = field(default_factory=Support)
    usual: Mapping[Habit, Usual] = field(default_factory=dict)
    """What is not among it follows from no default: it is chosen."""
    hidden: bool = False
    """Found for published rows, and not offered to users."""
    dispatch: Dispatch = field(default_factory=Dispatch)
    time: StackTime = field(default_factory=StackTime)
    memory: StackMemory = field(default_factory=StackMemory)
    time_of: str = ""
    """The stack whose numbers ``time`` are: its own name, or that of one with the same kernels, with whose runs its own
    are fitted."""
    memory_of: str = ""
    """The same of ``memory``, of which its own file may change what its code does otherwise."""
    source: str = ""
    fit: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of time and memory: rows, and errors on rows that were held back, and with each source left out."""
