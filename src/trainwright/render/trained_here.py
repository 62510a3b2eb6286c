"""Whether a recipe says what was planned, told without reading one: pydantic takes longer than a plan may."""

from __future__ import annotations

from trainwright.spec.families.family import FAMILY, Family
from trainwright.spec.model import FAMILIES, ModelSpec
from trainwright.spec.plan import Plan


def is_trained_here(plan: Plan) -> bool:
    """Returns whether this project's trainer makes the network from the start, as it was planned."""
    return isinstance(plan.model, ModelSpec) and is_built_here(plan.model) and is_run_here(plan)


def is_built_here(model: ModelSpec) -> bool:
    """Returns whether a family that is built here has exactly this shape."""
    if model.family not in FAMILIES:
        return False
    family: Family = FAMILY.load(model.family)
    built = family.shape(
        model.family,
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_size=model.head_size,
        ffn_width=model.ffn_width,
        vocabulary=model.vocabulary,
        context_tokens=model.context_tokens,
        tied=model.tied,
        norm_epsilon=model.norm_epsilon,
        rope_theta=model.rope_theta,
    )
    return built == model


def is_run_here(plan: Plan) -> bool:
    """Returns whether the trainer has all of a planned run's switches."""
    work, offload = plan.workload, plan.parallel.offload
    plain = work.adapter is None and work.example_tokens is None and work.states == "fp32"
    moved = work.update_in_backward or work.paged_moments or offload not in ("none", "optimizer")
    cut = work.optimizer == "adafactor" and (plan.parallel.tp > 1 or plan.parallel.zero_stage > 0)
    return plain and not moved and not cut
