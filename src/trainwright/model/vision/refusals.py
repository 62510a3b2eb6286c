"""What of a training batch norms cannot have: an answer that depends on how a batch is divided. No torch here."""

from __future__ import annotations

from trainwright.planner.counts.convolutions import convolutions
from trainwright.spec.convnet import counted
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan


def refusals(recipe: Recipe, parallel: ParallelPlan | None) -> tuple[str, ...]:
    """Returns why a network with batch norms is not trained so, a line for each reason; empty where it is.

    Args:
        recipe: of a convolutional network.
        parallel: a layout, whose micro batch counts; None: the recipe's micro batch counts, on one process.
    """
    train = recipe.train
    whole = train.batch_tokens // train.sequence_tokens
    micro = train.exec.micro_batch if parallel is None else parallel.micro_batch_sequences
    ranks = 1 if parallel is None else parallel.ranks
    reasons = list(of_batches(whole, None if micro == "auto" else micro, ranks=ranks, precision=train.precision))
    last = convolutions(counted(recipe.model_spec(vocabulary=0)))[-1]
    if train.sizes.at(0) == train.sequence_tokens and last.size == 1:
        reasons.append("a batch of one image, whose last stage has one place: no variance; take two images at least")
    if train.exec.on_oom == "adapt":
        reasons.append("on_oom=adapt: a smaller micro batch is not the whole batch; leave on_oom out")
    if train.averages:
        reasons.append("averaged weights have no running statistics of batch norms of their own; train without")
    if train.method.adapts:
        reasons.append(f"method={train.method.name}: adapters stand beside a transformer's matrices; set method=full")
    if recipe.model_spec(vocabulary=0).dropout:
        reasons.append("model.dropout: this network drops nothing; leave it out")
    if train.recompute != "none":
        reasons.append(f"recompute={train.recompute}: a second pass counts twice in batch norms; set recompute=none")
    return tuple(reasons)


def of_batches(whole: int, micro: int | None, *, ranks: int, precision: str) -> tuple[str, ...]:
    """Returns why a batch of ``whole`` images is not computed in passes of ``micro`` on so many ranks; None: in one."""
    told: tuple[str, ...] = ()
    if ranks > 1:
        told = (f"ranks={ranks}: a batch norm sees its whole batch on one process; set all axes to 1",)
    elif micro not in (None, whole):
        why = f"a batch norm sees its whole batch of {whole} in one pass; leave micro_batch out"
        told = (f"micro_batch={micro}: {why}",)
    return told + ("precision=fp8: no convolution computes in fp8; set precision=bf16",) * (precision == "fp8")
