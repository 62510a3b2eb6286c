"""``parallelize``: one network becomes this rank's part of it; the order of its lines is its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.runtime.cuts import Cut, mark_all
from trainwright.runtime.device import compiler
from trainwright.runtime.mesh import Mesh

EXPERTS = "trainwright.model.parallel.experts"


def parallelize(network: Network, mesh: Mesh, *, compiled: bool) -> dict[str, Cut]:
    """Turns a network into this rank's part of it, in place.

    0. Of a pipeline, the blocks of other ranks' stages are dropped.
    1. Matrices are cut: each rank along ``tp`` keeps rows or columns of them, along ``ep`` some of a layer's experts.
    2. Attention hears which ranks have other tokens of its sequences.
    3. Blocks are compiled, each by itself, so that one block's code serves all of them.
    4. Weights, gradients and optimizer state are shared by the data-parallel ranks, block by block, so that a block's
       weights are gathered while the one before computes.

    Gradients are *summed* over the ranks and never divided: the trainer has divided each loss by the weight of the
    whole batch already, so that no number of ranks stands in any formula.

    Args:
        network: whole and filled.
        mesh: the ranks; alone nothing is shared.
        compiled: run blocks through ``torch.compile``.

    Returns:
        How parameters are cut along ``tp`` and ``ep``, by name.
    """
    if mesh.size("pp") > 1:
        load("trainwright.model.parallel.stages:keep_stages", kind="layout")(network, mesh)
    cuts: dict[str, Cut] = {}
    if mesh.size("tp") > 1:
        cuts = load("trainwright.model.parallel.tensor:cut_matrices", kind="layout")(network, mesh)
    if mesh.experts is not None:
        cuts |= load(f"{EXPERTS}:divide_experts", kind="layout")(network, mesh.experts)
    if mesh.size("cp") > 1:
        load("trainwright.model.parallel.context:divide", kind="layout")(network, mesh)
    if compiled:
        for block in network.blocks:
            block.compile(backend=compiler(mesh.device_type))
    if mesh.sharing is not None:
        _shard(network, mesh, gather_again=mesh.parallel.zero_stage == 3 and mesh.size("pp") == 1)
    mark_all(network, cuts)
    return cuts


def _shard(network: Network, mesh: Mesh, *, gather_again: bool) -> None:
    """Shards every block, then what is left; ``gather_again``: weights are dropped after the forward pass (ZeRO-3).

    In a pipeline they are not: other micro batches need them at once. Experts that are divided are shared by the ranks
    that have the same ones alone.

    A block's layers cast their weights to the dtype of products, so that they may be gathered in it: the same bits at
    half the bytes. The rest keeps its dtype, for the head adds up its gradient in it. Gradients are reduced in weights'
    dtype, or all of them in bf16, in which whole ones are then added up over micro batches too; shards keep theirs.
    """
    whole = next(network.parameters()).dtype
    reduced = torch.bfloat16 if network.kernels.reduce == "bf16" else None
    width = network.compute_dtype if network.compute_dtype != whole else None
    policy = MixedPrecisionPolicy(param_dtype=width, reduce_dtype=reduced or (None if width is None else whole))
    assert mesh.sharing is not None
    share = partial(fully_shard, reshard_after_forward=gather_again, mp_policy=policy)
    if mesh.experts is not None:
        sharing = mesh.experts.sharing
        for matrix in load(f"{EXPERTS}:matrices_of", kind="layout")(network):
            share(matrix, mesh=sharing, shard_placement_fn=partial(_placement, ranks=sharing.shape[-1]))
    for block in network.blocks:
        share(block, mesh=mesh.sharing, shard_placement_fn=partial(_placement, ranks=mesh.sharing.shape[-1]))
    # The rest is used at the pass's beginning and end, so that dropping it between would only gather it twice.
    rest = MixedPrecisionPolicy(reduce_dtype=reduced)
    fully_shard(network, mesh=mesh.sharing, reshard_after_forward=False, mp_policy=rest)
    for module in sharded_modules(network):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it adds up


def _placement(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """Returns along which dim a block's parameter is shared; None: the first.

    Of experts that ranks do not divide some ranks would have none, and others more than their share: each rank has some
    rows of every one.
    """
    experts = parameter.ndim > 2 and parameter.shape[0] % ranks and parameter.shape[1] % ranks == 0
    return Shard(1) if experts else None


def sharded_modules(network: nn.Module) -> Sequence[FSDPModule]:
    """Returns the parts of a network whose weights are gathered together; none where it is not sharded."""
    return [module for module in network.modules() if isinstance(module, FSDPModule)]


def reduce_gradients(network: nn.Module, *, zero_stage: int, last: bool) -> None:
    """Says how the next backward pass leaves gradients, one of several micro batches.

    From ZeRO-2 on a rank keeps its shard of the gradients alone: they are reduced after each micro batch. Below, whole
    gradients are added up on each rank, and reduced once. Copies of a shard are always added up once.
    """
    for module in sharded_modules(network):
        module.set_requires_gradient_sync(last or zero_stage >= 2, recurse=False)
        module.set_requires_all_reduce(last, recurse=False)
        # Below ZeRO-3 weights do not change before the update, so that they are gathered once for all micro batches.
        module.set_reshard_after_backward(last or zero_stage == 3, recurse=False)
        # After what it takes for the last pass, FSDP lets go of the buffer in which gradients were reduced: that of
        # embedding and head would be kept through the whole next micro batch.
        module.set_is_last_backward(last or zero_stage >= 2)
