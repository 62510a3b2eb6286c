"""``Efficiency``: how much of a device's datasheet training reaches, over all software; fitted to published runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """The numbers of ``catalog/efficiency.toml``, which stand there alone: shares of a rate, multiples of counted work.

    ``products`` and ``attention`` are by device generation: matrix products' share of the dense peak (``cores`` of
    NVIDIA's GPUs where no tensor cores have the format), and fused attention's share of that. ``precisions`` multiplies
    products.
    ``traffic`` is memory traffic between products against fully fused operations, by how a stack runs them.
    """

    products: Mapping[str, float]
    attention: Mapping[str, float]
    precisions: Mapping[str, float]
    traffic: Mapping[str, float]
    matmul: Mapping[str, float] = field(default_factory=dict)
    """Measured share of the dense bf16 peak that matrix products alone reach, by generation: what ``products`` is
    fitted from, and what a device's own measured share is held against."""
    doubt: Mapping[str, float] = field(default_factory=dict)
    """Deviations of the logarithm of a step's time that come to a stack's own, in squares: ``source`` for every run, as
    errors grow when their source is left out of the fit; others by kind of work; for a stack without runs on a
    generation ``generation``, where no other stack has any, or kernels are another vendor's than CUDA's, and less of it
    the more runs others have there, with ``untuned``; ``borrowed`` for a stack with the numbers of another; and
    ``beyond`` for each doubling outside of ``span``."""
    span: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Between what 98 of 100 runs lie that the numbers are fitted to: tokens of a sequence, of a step on a device, and
    parameters."""
    seen: tuple[str, ...] = ()
    """Generations of devices with published runs."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many runs of each the numbers are fitted to."""
    bandwidth: float
    """Share of the memory's datasheet rate that streams reach."""
    tiles: float
    """Exponent of the share of processors that whole waves of tiles keep busy: libraries choose other tiles."""
    unaligned: float
    """Speed of a product whose sizes are no multiple of 128 bytes."""
    operands: float
    """Times that reading and writing a product's operands once adds to its time: below 1 where that hides behind it,
    above where kernels read them again for each tile."""
    ramp: float
    """Tokens of sequence at which fused attention reaches half of its rate."""
    scores: float
    """Times that what attention moves which writes its scores takes longer than counted."""
    encoder: float
    """The same of an encoder's dropout."""
    loss: float
    """Times that the loss moves fp32 logits, forward and backward."""
    fused_loss: float
    """The same where the loss is fused, of that."""
    casts: float
    """Bytes a parameter that casting weights costs in each pass, where they are kept in fp32 and not sharded."""
    launch_s: float
    """Seconds between two kernels that the host can keep up with."""
    expert_kernels: float
    """Kernels that routing adds to a block with experts, beside what each expert of the rank takes."""
    expert_traffic: float
    """Memory traffic between products in models with experts, against the counted."""
    selective: float
    """Share of the forward pass that selective recomputation repeats."""
    adapted: float
    """Times that what adapters move takes longer than counted."""
    dequantised: float
    """Times that making 16-bit weights of quantised ones takes longer than moving their bytes."""
    tensor: float
    """Exposed share of tensor parallelism's communication."""
    context: float
    """The same of context parallelism."""
    expert: float
    """The same of expert parallelism."""
    sharded: float
    """Share of the seconds of FSDP's communication by which the kernels beside it are slower."""
    gradients: float
    """Times that the exchange of gradients once a step takes longer than the links say."""
    overlap: float
    """Share of the last micro batch's backward pass behind which it hides (``Stack.overlaps_gradients``)."""
    bus: Mapping[str, float] = field(default_factory=dict)
    """Times that collectives over a PCIe bus take longer than the slowest link alone: between peers, or staged in host
    memory where the devices cannot reach each other."""
    bus_sharing: Mapping[str, float] = field(default_factory=dict)
    """Exponent of the devices on one bus: switches, host bridges and the host's memory are shared. Of what is sent over
    the network neither holds."""
    update: float
    """The update's memory traffic against one fused kernel."""
    bubble: float
    """Of the schedule's bubble, what is really idle."""
