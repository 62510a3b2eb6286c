"""Every planned family against transformers' own network on the meta device: parameters, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.reference_models import SMALL, build
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.parameters import (
    active_parameters,
    block_matrices,
    block_matrix_parameters,
    matrices,
    parameter_counts,
    total_parameters,
)
from trainwright.spec.families.huggingface import READERS
from trainwright.spec.model import PLANNED_FAMILIES


@pytest.fixture(params=SMALL)
def reference(request):
    return build(*SMALL[request.param])


def test_each_family_that_is_read_has_its_reference():
    assert {name.partition("-")[0] for name in SMALL} == set(READERS) - {"kimi_k2"}
    assert set(READERS) == set(PLANNED_FAMILIES) - {"transformer"}


def test_the_total_is_that_of_transformers(reference):
    module, spec = reference
    assert total_parameters(spec) == sum(parameter.numel() for parameter in module.parameters())


def test_components_are_those_of_the_module():
    module, spec = build(*SMALL["deepseek_v3"])
    marks = {
        "embedding": ("embed_tokens",),
        "norms": ("norm",),
        "attention": ("self_attn",),
        "router": ("mlp.gate.",),
        "experts": ("mlp.experts",),
        "shared": ("shared_experts",),
        "feed_forward": ("mlp.",),
        "head": ("lm_head",),
    }
    sizes = dict.fromkeys(parameter_counts(spec), 0)
    for name, parameter in module.named_parameters():
        sizes[next(part for part, words in marks.items() if any(word in name for word in words))] += parameter.numel()
    assert sizes == parameter_counts(spec)


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss"])
def test_matrices_are_the_modules_weights(name):
    module, spec = build(*SMALL[name])
    weights = [p for key, p in module.named_parameters() if p.ndim > 1 and not key.endswith("bias")]
    shapes = [shape for weight in weights for shape in _sheets(weight, transposed=name == "gpt_oss")]
    listed = [
        (matrix.outputs, matrix.inputs) for matrix in matrices(spec) for _ in range(matrix.layers * matrix.copies)
    ] + [(spec.vocabulary, spec.width)]
    assert sum(a * b for a, b in shapes) == sum(a * b for a, b in listed)
    plain = {pair for pair in listed if listed.count(pair) == 1}
    assert plain <= set(shapes)


def _sheets(weight, *, transposed):
    """(outputs, inputs) of the matrix, or of each expert's slice of it; gate and up lie in one."""
    if weight.ndim == 2:
        return [tuple(weight.shape)]
    count, rows, columns = weight.shape
    return [(columns, rows) if transposed else (rows, columns)] * count


def test_a_token_passes_its_experts_alone():
    _, spec = build(*SMALL["mixtral"])
    idle = replace(spec, experts=replace(spec.experts, count=spec.experts.active))
    router = spec.layers * spec.width * (spec.experts.count - spec.experts.active)
    assert active_parameters(spec) == total_parameters(idle) + router
    _, dense = build(*SMALL["llama"])
    assert active_parameters(dense) == total_parameters(dense)


def test_blocks_hold_what_the_layers_hold(reference):
    _, spec = reference
    if spec.family == "resnet":
        return
    per_block = sum(outputs * inputs for outputs, inputs in block_matrices(spec))
    assert per_block <= block_matrix_parameters(spec) <= total_parameters(spec)
    if not spec.moe_layers:
        assert block_matrix_parameters(spec) == spec.layers * per_block


def test_a_block_that_predicts_further_tokens_has_deepseeks_parameters():
    """deepseek-ai/DeepSeek-V3@0b39205:README_WEIGHTS.md: 671B of the main model; 11.5B of the module without embedding
    and head, which it shares; 2.4B of the module are active, 0.9B each of embedding and head among them (without the
    projection, it seems).
    """
    model = catalogue_model("deepseek-v3")
    main = model.deployed()
    assert total_parameters(main) == pytest.approx(671e9, rel=0.001)
    more = total_parameters(model) - total_parameters(main)
    assert more == pytest.approx(11.5e9, rel=0.01)
    shared = 2 * model.vocabulary * model.width
    counts, plain = parameter_counts(model), parameter_counts(main)
    assert active_parameters(model) - active_parameters(main) + shared == pytest.approx(
        2.4e9 + counts["further"], rel=0.02
    )
    # What joins the token's embedding to the hidden state, and their norms and the head's.
    assert counts["further"] == 2 * model.width**2 and "further" not in plain
    layer = plain["norms"] - model.width
    assert counts["norms"] - plain["norms"] == layer / 61 + 3 * model.width
    assert counts["embedding"] == plain["embedding"] and counts["head"] == plain["head"]
