"""What a step of a convolutional network computes, moves and saves on one device; an image is one sequence.

The same ``Work`` as of transformers, so that rates and forecasts put both together in one way.
"""

from __future__ import annotations

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.convolutions import Convolution, classifier_flops, convolutions
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parameters import MOMENTS_PER_PARAMETER, total_parameters
from trainwright.planner.counts.work import Work, peak_flops_per_s, tile_share
from trainwright.spec.convnet import AnyModel, ConvNetSpec
from trainwright.spec.device import DeviceSpec
from trainwright.spec.workload import OptimizerName, Workload

OPTIMIZERS: tuple[OptimizerName, ...] = ("adamw", "sgd")
"""Those that update any tensor, matrix or not, element by element."""
NORM_ACCESSES = 2.0
"""Elements that a batch norm with the ReLU behind it moves for one of its input where all is fused: read once, written
once. Eager kernels move five forward and eight backward: statistics, norm and ReLU each read their input; that ratio to
four forward and backward is near to transformers', which a stack's ``traffic`` states."""
WINOGRAD = 2.25
"""Multiplications of a 3x3 convolution without stride for one that is left where libraries compute it in tiles of 2x2,
as they do in full fp32 (Lavin and Gray, 2015, arXiv 1509.09308, section 4.1)."""
TRANSPOSITION = 2.0
"""Times that a tensor core's convolution moves its operands beside the product itself where channels do not come last:
read and written once more. Recipes put them last for 16 bits, and leave PyTorch's own order for TF32. On an RTX 3090 it
costs 0.39 ms an image of ResNet-50 (huggingface/pytorch-image-models@aa4b585, results/benchmark-train-amp-*.csv)."""
STATISTICS_BYTES = 8
"""Mean and deviation of one channel in fp32, kept for the backward pass."""
INDEX_BYTES = 8
"""Place of one maximum in the stem's pooling."""


def check(workload: Workload, layouts: Layouts) -> None:
    """Refuses what is for transformers alone.

    Raises:
        RecipeError: names all of it.
    """
    problems = [
        f"{name} is for transformers; a convolutional network needs {name}=1"
        for name in ("tp", "pp", "cp", "ep")
        if np.any(getattr(layouts, name) != 1)
    ]
    if workload.optimizer not in OPTIMIZERS:
        problems.append(f"{workload.optimizer} is for matrices; a convolutional network needs sgd or adamw")
    if workload.adapter is not None:
        problems.append("adapters stand beside a transformer's matrices")
    if np.any(~layouts.has("recompute", "none")):
        problems.append("recomputation is for transformers' blocks; a convolutional network needs recompute=none")
    if np.any(~layouts.has("offload", "none")):
        problems.append("offload is for transformers; a convolutional network needs offload=none")
    if problems:
        raise RecipeError("; ".join(problems), where="convolutional network")


def outputs_of(convolution: Convolution) -> int:
    """Returns the elements of its result for one image, in one layer."""
    return convolution.outputs * convolution.size**2


def inputs_of(convolution: Convolution) -> int:
    """Returns the elements that it reads for one image, in one layer."""
    return convolution.inputs * (convolution.size * convolution.stride) ** 2


def pooled_elements(model: ConvNetSpec) -> int:
    """Returns the elements of one image behind the stem's pooling."""
    stem = convolutions(model)[0]
    return model.stem_width * (-(-stem.size // 2)) ** 2


def saved_bytes(model: ConvNetSpec, workload: Workload, images: Numbers) -> Numbers:
    """Returns the bytes [L] that autograd keeps of ``images``, logits and labels left out.

    A convolution keeps its input, a batch norm its own with the statistics, a ReLU its result, which is the next
    convolution's input. So each convolution's result is kept, and again what a ReLU makes of it or of a block's sum.
    Under autocast the copies of the filters are kept too. Exactly what ``saved_tensors_hooks`` sees on transformers'
    ResNet.
    """
    size, layers = workload.element_bytes, convolutions(model)
    # No ReLU stands behind a shortcut.
    wide = sum(c.layers * outputs_of(c) * (1 if c.name.endswith(".shortcut") else 2) for c in layers)
    image = model.channels * model.image_size**2
    each = size * (image + wide + pooled_elements(model) + model.widths[-1]) + INDEX_BYTES * pooled_elements(model)
    fixed = sum(c.layers * c.outputs for c in layers) * STATISTICS_BYTES
    if size == 2 and workload.states == "fp32":
        fixed += 2 * (sum(_filters(c) for c in layers) + model.classes * model.widths[-1])
    return images * each + fixed


def _filters(convolution: Convolution) -> int:
    """Returns the parameters but for the batch norm's."""
    return convolution.parameters - 2 * convolution.layers * convolution.outputs


def convnet_work(model: ConvNetSpec, workload: Workload, layouts: Layouts, device: DeviceSpec) -> Work:
    """Returns the work that one device computes and moves in its own memory.

    Convolutions are products of patches with filters; of their operands' traffic only what takes longer than the
    product counts, since patches are made on the way. Raises as ``check``, or where the precision has no known peak.
    """
    check(workload, layouts)
    images, size = layouts.micro_batch, workload.element_bytes
    peak, rate = peak_flops_per_s(device, workload.precision), device.bytes_per_s
    if not peak:
        raise RecipeError("no peak rate for {precision} is known", where=device.name, precision=workload.precision)
    zero = np.zeros(len(layouts))
    flops, busy, exposed = zero, zero, zero
    turned = TRANSPOSITION if workload.precision == "tf32" else 0.0
    for c in convolutions(model):
        spared = WINOGRAD if workload.precision == "fp32" and (c.kernel, c.stride) == (3, 1) else 1
        flops_of_one = images * c.forward_flops / spared
        flops = flops + flops_of_one
        busy = busy + flops_of_one / tile_share(images * c.size**2, c.outputs, device.sm_count or 1)
        moved = size * (images * (outputs_of(c) + inputs_of(c)) * c.layers + _filters(c)) / rate
        exposed = exposed + np.maximum(0.0, moved - flops_of_one / peak) + turned * moved
    layers, stem = convolutions(model), convolutions(model)[0]
    # The blocks' sums read elements beside the batch norm's result.
    last = (c for c in layers if c.name.endswith(".2" if model.bottleneck else ".1"))
    summed = sum(c.layers * outputs_of(c) for c in last)
    between = NORM_ACCESSES * sum(c.layers * outputs_of(c) for c in layers) + summed + outputs_of(stem)
    parameters = float(total_parameters(model))
    # An update reads gradient, weight and moments, and writes weight and moments.
    accesses = 3.0 + 2 * MOMENTS_PER_PARAMETER[workload.optimizer]
    updated = (size if workload.states == "pure" else 4) * accesses
    updated += 2.0 if workload.states == "mixed" else 0.0
    cast = parameters if size == 2 and workload.states == "fp32" else 0.0
    return Work(
        tokens=images * workload.sequence_tokens,
        layers=zero + model.blocks,
        products_s=flops / peak,
        head_s=images * classifier_flops(model) / peak,
        operands_s=exposed,
        traffic_s=size * images * between / rate,
        loss_s=4.0 * images * model.classes / rate,
        casts_s=np.where((layouts.zero_stage == 3) & (layouts.dp_shard > 1), 0.0, cast) / rate,
        kernels=zero + 3 * sum(c.layers for c in layers) + model.blocks,
        backward_products=2 - stem.forward_flops / sum(c.forward_flops for c in layers),
        update_s=updated * shared_parameters(model, layouts, from_stage=1) / rate,
        busy=flops / busy,
    )


def shared_parameters(model: ConvNetSpec, layouts: Layouts, *, from_stage: int) -> Numbers:
    """Returns the parameters of one rank where ranks share them from ZeRO stage ``from_stage`` on."""
    return total_parameters(model) / np.where(layouts.zero_stage >= from_stage, layouts.dp_shard, 1.0)


def batch_text(model: AnyModel, tokens: int) -> str:
    """Returns a batch of so many tokens as people count it: ``4,096 images``, ``4,194,304 tokens``."""
    return f"{tokens // model.batch_unit_tokens:,} {model.batch_unit}"
