"""Every planned family against transformers' own network on the meta device: parameters, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.reference_models import SMALL, build
from trainwright.core.errors import RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.planner.parameters import (
    active_parameters,
    adaptable,
    adapter_parameters,
    block_matrices,
    block_matrix_parameters,
    matrices,
    parameter_counts,
    total_parameters,
)
from trainwright.spec.huggingface import READERS
from trainwright.spec.model import PLANNED_FAMILIES
from trainwright.spec.workload import Adapter


@pytest.fixture(params=SMALL)
def reference(request):
    return build(*SMALL[request.param])


def test_each_family_that_is_read_has_its_reference():
    assert {name.partition("-")[0] for name in SMALL} == set(READERS) - {"kimi_k2"}
    assert set(READERS) == set(PLANNED_FAMILIES) - {"transformer"} | {"resnet"}


def test_the_total_is_that_of_transformers(reference):
    module, spec = reference
    assert total_parameters(spec) == sum(parameter.numel() for parameter in module.parameters())


def test_components_are_those_of_the_module():
    module, spec = build(*SMALL["deepseek_v3"])
    marks = {
        "embedding": ("embed_tokens",), "norms": ("norm",), "attention": ("self_attn",), "router": ("mlp.gate.",),
        "experts": ("mlp.experts",), "shared": ("shared_experts",), "feed_forward": ("mlp.",), "head": ("lm_head",),
    }  # fmt: skip
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
        (matrix.outputs, matrix.inputs)
        for matrix in matrices(spec)
        for _ in range(matrix.layers * matrix.copies)
    ] + [(spec.vocabulary, spec.width)]  # fmt: skip
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


@pytest.mark.parametrize("rank", [1, 8])
def test_adapters_are_two_factors_beside_each_target(rank):
    module, spec = build(*SMALL["llama"])
    named = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj", "gate": "gate_proj",
             "up": "up_proj", "down": "down_proj"}  # fmt: skip
    for targets in (("query", "value"), tuple(named)):
        theirs = sum(
            rank * sum(weight.shape)
            for name, weight in module.named_parameters()
            if any(f".{named[target]}.weight" in name for target in targets)
        )
        assert adapter_parameters(spec, Adapter(rank=rank, targets=targets)) == theirs


def test_adapters_stand_beside_every_expert():
    _, spec = build(*SMALL["mixtral"])
    each = spec.width + spec.experts.ffn_width
    assert adapter_parameters(spec, Adapter(rank=2, targets=("down",))) == spec.layers * spec.experts.count * 2 * each
    assert adapter_parameters(spec, Adapter(rank=2, parameters=7)) == 7


def test_an_unknown_target_is_named_with_its_neighbour():
    _, spec = build(*SMALL["llama"])
    with pytest.raises(RecipeError, match=r"no such matrix to adapt \(seen 'quary', expected .*did you mean 'query'"):
        adapter_parameters(spec, Adapter(rank=2, targets=("quary",)))


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("llama3-8b", "query key value output gate up down"), ("gpt2", "query key value output up down"),
        ("deepseek-v3", "query_down query_up kv_down kv_up output gate up down"),
        ("mixtral-8x7b", "query key value output gate up down"),
    ],
)  # fmt: skip
def test_adapters_may_stand_beside_all_matrices_of_a_block_but_the_router(name, names):
    found = adaptable(catalogue_model(name))
    assert found == tuple(names.split())
