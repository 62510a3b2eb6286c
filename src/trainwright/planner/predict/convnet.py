"""Training a ResNet with data parallelism: what a step computes, moves, sends and keeps.

The same shapes as for transformers (``Work``, ``Exchange``, ``MemoryTable``), so that ``forecast`` puts them together
in one way. An image is one sequence of the workload.
"""

from __future__ import annotations

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.planner.convolutions import Convolution, classifier_flops, convolutions
from trainwright.planner.parameters import total_parameters
from trainwright.planner.predict.collectives import Fabric, all_gather_s, all_reduce_s, placement, reduce_scatter_s
from trainwright.planner.predict.exchange import Exchange, on_own_links
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.memory import MemoryTable, stuck_share
from trainwright.planner.predict.states import StateBytes
from trainwright.planner.predict.work import Work, peak_flops_per_s, tile_share
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec, DeviceSpec
from trainwright.spec.stack import Stack, StackMemory
from trainwright.spec.workload import Workload

MOMENTS_PER_PARAMETER = {"adamw": 2.0, "sgd": 1.0}
"""SGD with momentum, as ResNets are trained (He et al., 2015, section 3.4)."""
UPDATE_ACCESSES = {"adamw": 7.0, "sgd": 5.0}
"""Gradient, weight and moments read, weight and moments written."""
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
    """Refuse what is for transformers alone.

    Raises:
        RecipeError: names all of it.
    """
    found = [
        f"{name} is for transformers; a convolutional network needs {name}=1"
        for name in ("tp", "pp", "cp", "ep")
        if np.any(getattr(layouts, name) != 1)
    ]
    if workload.optimizer not in MOMENTS_PER_PARAMETER:
        found.append(f"{workload.optimizer} is for matrices; a convolutional network needs sgd or adamw")
    if workload.adapter is not None:
        found.append("adapters stand beside a transformer's matrices")
    if np.any(~layouts.has("recompute", "none")):
        found.append("recomputation is for transformers' blocks; a convolutional network needs recompute=none")
    if np.any(~layouts.has("offload", "none")):
        found.append("offload is for transformers; a convolutional network needs offload=none")
    if found:
        raise RecipeError("; ".join(found), where="convolutional network")


def element_bytes(workload: Workload) -> int:
    """Bytes of an activation."""
    return 4 if workload.precision in ("fp32", "tf32") else 2


def outputs_of(convolution: Convolution) -> int:
    """Elements of its result for one image, in one layer."""
    return convolution.outputs * convolution.size**2


def inputs_of(convolution: Convolution) -> int:
    """Elements that it reads for one image, in one layer."""
    return convolution.inputs * (convolution.size * convolution.stride) ** 2


def is_shortcut(convolution: Convolution) -> bool:
    """Whether no ReLU of its own stands behind it."""
    return convolution.name.endswith(".shortcut")


def pooled_elements(model: ConvNetSpec) -> int:
    """Elements of one image behind the stem's pooling."""
    stem = convolutions(model)[0]
    return model.stem_width * (-(-stem.size // 2)) ** 2


def saved_bytes(model: ConvNetSpec, workload: Workload, images: Numbers) -> Numbers:
    """Bytes [L] that autograd keeps of ``images``, logits and labels left out.

    A convolution keeps its input, a batch norm its own with the statistics, a ReLU its result, which is the next
    convolution's input. So each convolution's result is kept, and again what a ReLU makes of it or of a block's sum.
    Under autocast the copies of the filters are kept too. Exactly what ``saved_tensors_hooks`` sees on transformers'
    ResNet.
    """
    size, layers = element_bytes(workload), convolutions(model)
    wide = sum(c.layers * outputs_of(c) * (1 if is_shortcut(c) else 2) for c in layers)
    image = model.channels * model.image_size**2
    each = size * (image + wide + pooled_elements(model) + model.widths[-1]) + INDEX_BYTES * pooled_elements(model)
    fixed = sum(c.layers * c.outputs for c in layers) * STATISTICS_BYTES
    if size == 2 and workload.states == "fp32":
        fixed += 2 * (sum(_filters(c) for c in layers) + model.classes * model.widths[-1])
    return images * each + fixed


def _filters(convolution: Convolution) -> int:
    """Parameters but for the batch norm's."""
    return convolution.parameters - 2 * convolution.layers * convolution.outputs


def convnet_work(model: ConvNetSpec, workload: Workload, layouts: Layouts, device: DeviceSpec) -> Work:
    """What one device computes and moves in its own memory.

    Convolutions are products of patches with filters; of their operands' traffic only what takes longer than the
    product counts, since patches are made on the way.

    Raises:
        RecipeError: see ``check``.
    """
    check(workload, layouts)
    images, size = layouts.micro_batch, element_bytes(workload)
    peak, rate = peak_flops_per_s(device, workload.precision), device.bytes_per_s
    if not peak:
        raise RecipeError(f"no peak rate for {workload.precision} is known", where=device.name)
    zero = np.zeros(len(layouts))
    flops, busy, exposed = zero, zero, zero
    turned = TRANSPOSITION if workload.precision == "tf32" else 0.0
    for c in convolutions(model):
        own = images * c.forward_flops / (WINOGRAD if workload.precision == "fp32" and _tiled(c) else 1)
        flops = flops + own
        busy = busy + own / tile_share(images * c.size**2, c.outputs, device.sm_count or 1)
        moved = size * (images * (outputs_of(c) + inputs_of(c)) * c.layers + _filters(c)) / rate
        exposed = exposed + np.maximum(0.0, moved - own / peak) + turned * moved
    layers, stem = convolutions(model), convolutions(model)[0]
    blocks = sum(model.depths)
    between = NORM_ACCESSES * sum(c.layers * outputs_of(c) for c in layers) + _sums(model) + outputs_of(stem)
    parameters = float(total_parameters(model))
    cast = parameters if size == 2 and workload.states == "fp32" else 0.0
    return Work(
        tokens=images * workload.sequence_tokens, layers=zero + blocks, products_s=flops / peak, unaligned_s=zero,
        head_s=images * classifier_flops(model) / peak, operands_s=exposed, attention_s=zero, scores_s=zero,
        traffic_s=size * images * between / rate, loss_s=4.0 * images * model.classes / rate, encoder_s=zero,
        casts_s=np.where((layouts.zero_stage == 3) & (layouts.dp_shard > 1), 0.0, cast) / rate,
        kernels=zero + 3 * sum(c.layers for c in layers) + blocks, expert_layers=zero,
        backward_products=2 - stem.forward_flops / sum(c.forward_flops for c in layers),
        update_s=_update_bytes(workload) * _owned(model, layouts, from_stage=1) / rate, busy=flops / busy,
    )  # fmt: skip


def _tiled(convolution: Convolution) -> bool:
    return convolution.kernel == 3 and convolution.stride == 1


def _sums(model: ConvNetSpec) -> int:
    """Elements of one image that the blocks' sums read beside the batch norm's result."""
    last = [c for c in convolutions(model) if c.name.endswith(".2" if model.bottleneck else ".1")]
    return sum(c.layers * outputs_of(c) for c in last)


def _update_bytes(workload: Workload) -> float:
    """Bytes that updating one parameter moves."""
    each = element_bytes(workload) if workload.states == "pure" else 4
    return each * UPDATE_ACCESSES[workload.optimizer] + (2.0 if workload.states == "mixed" else 0.0)


def _owned(model: ConvNetSpec, layouts: Layouts, *, from_stage: int) -> Numbers:
    """Parameters of one rank where ranks share them from ZeRO stage ``from_stage`` on."""
    return total_parameters(model) / np.where(layouts.zero_stage >= from_stage, layouts.dp_shard, 1.0)


def convnet_exchange(model: ConvNetSpec, workload: Workload, layouts: Layouts, cluster: ClusterSpec) -> Exchange:
    """What data parallelism sends: gradients once a step, and weights too where they are sharded.

    Raises:
        RecipeError: no link is known between devices that need one.
    """
    fabric = Fabric.of(cluster)
    groups = placement(domain=fabric.domain, dp_shard=layouts.dp_shard, dp_replicate=layouts.dp_replicate)
    size = total_parameters(model) * float(element_bytes(workload))
    gradients = total_parameters(model) * (float(element_bytes(workload)) if workload.states == "pure" else 4.0)
    zero = np.zeros(len(layouts))
    sharded = (layouts.zero_stage == 3) & (layouts.dp_shard > 1)
    inner = all_reduce_s(fabric, gradients, groups.shard)
    outer = all_reduce_s(fabric, gradients / layouts.dp_shard, groups.dp_replicate)
    return Exchange(
        tensor_s=zero, context_s=zero, expert_s=zero, pipeline_s=zero,
        gather_s=np.where(sharded, all_gather_s(fabric, size, groups.shard), 0.0),
        scatter_s=np.where(sharded, reduce_scatter_s(fabric, gradients, groups.shard), 0.0),
        gradients_s=np.where(sharded, outer, inner + outer),
        bus=np.full(len(layouts), 0.0 if on_own_links(cluster) else np.log(cluster.node.devices)),
    )  # fmt: skip


def state_bytes(workload: Workload, memory: StackMemory) -> StateBytes:
    """Bytes of one parameter by ``Workload.states``."""
    size = float(element_bytes(workload))
    full, mixed = (size if workload.states == "pure" else 4.0), workload.states == "mixed" and size < 4
    return StateBytes(
        weight=size if mixed else full,
        gradient=full,
        optimizer=full * MOMENTS_PER_PARAMETER[workload.optimizer] + 4.0 * mixed,
        update=full * memory.update_copies,
    )


def convnet_memory(
    model: ConvNetSpec, workload: Workload, layouts: Layouts, cluster: ClusterSpec, stack: Stack
) -> MemoryTable:
    """Peak memory of one device: when the backward pass starts, or when all gradients are there for the update.

    The fp32 images that the loader hands over count as workspace.

    Raises:
        RecipeError: see ``check``.
    """
    check(workload, layouts)
    memory, size, one = stack.memory, float(element_bytes(workload)), np.ones(len(layouts))
    each, owned = (
        state_bytes(workload, memory),
        {stage: _owned(model, layouts, from_stage=stage) for stage in (1, 2, 3)},
    )
    gradients, update = each.gradient * owned[2], each.update * owned[1]
    images = layouts.micro_batch
    saved = memory.activations * saved_bytes(model, workload, images)
    # Logits, their fp32 probabilities and both gradients; labels.
    logits = images * (model.classes * (2 * size + 8.0) + 8.0)
    earlier = np.where((layouts.micro_batches > 1) | memory.flat_gradients, gradients, 0.0)
    late = gradients + update > earlier + saved + logits
    parts = {
        "weights": each.weight * owned[3],
        "gradients": np.where(late, gradients, earlier),
        "optimizer": each.optimizer * owned[1],
        "activations": np.where(late, 0.0, saved),
        "logits": np.where(late, 0.0, logits),
        "communication": memory.reduce_copies * gradients * (layouts.data_parallel > 1),
        "workspace": np.where(late, update, 0.0) + 4.0 * images * model.channels * model.image_size**2
        + memory.workspace_bytes,
    }  # fmt: skip
    allocated = np.add.reduce(list(parts.values()))
    return MemoryTable(
        **parts,
        reserved_unused=memory.fragmentation * allocated,
        stuck=stuck_share(memory) * allocated,
        context=memory.context_bytes * one,
        spread=memory.spread * one,
        last_stage=one < 0,
        moment=np.where(late, 3, 0),
        host_bytes=0 * one,
        nvme_bytes=0 * one,
    )
