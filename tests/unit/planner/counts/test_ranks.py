"""What a rank has of the model: over all ranks it is the model."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.ranks import lighter_ends, rank_parameters, slowest_layers
from trainwright.planner.forecast.time.bubble import layers_of_chunks
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 96, steps=1, precision="bf16", optimizer="adamw")


LLAMA_8B, MIXTRAL = catalogue_model("llama3-8b"), catalogue_model("mixtral-8x7b")


def layouts(*plans, work=WORK, recompute="none"):
    return Layouts.of(plans, [recompute] * len(plans), work)


@pytest.mark.parametrize(
    ("layers", "pp", "chunks"),
    [(61, 16, 1), (62, 16, 1), (14, 4, 1), (126, 16, 1), (94, 8, 3), (10, 4, 2), (64, 8, 2), (13, 3, 2)],
)
def test_what_ends_have_fewer_is_what_stages_hold(layers, pp, chunks):
    model = replace(LLAMA_8B, layers=layers)
    shape = layouts(ParallelPlan(pp=pp, virtual_stages=chunks))
    layers_of_ranks, most = layers_of_chunks(layers, pp, chunks).sum(axis=1), slowest_layers(model, shape)[0]
    last, ends = lighter_ends(model, shape)
    assert most * (1 - last[0]) == pytest.approx(layers_of_ranks[-1])
    assert most * (1 - ends[0]) == pytest.approx((layers_of_ranks[0] + layers_of_ranks[-1]) / 2)


def most_blocks(layers, ranks):
    """Blocks dealt out one at a time; the fullest rank."""
    layers_of_ranks = [0] * ranks
    for layer in range(layers):
        layers_of_ranks[layer % ranks] += 1
    return max(layers_of_ranks)


@given(st.integers(1, 130), st.integers(1, 16))
def test_the_slowest_rank_has_most_blocks(layers, ranks):
    model = replace(LLAMA, layers=layers)
    slowest = slowest_layers(model, layouts(ParallelPlan(pp=ranks)))[0]
    if (layers + 2) % ranks:
        assert slowest == most_blocks(layers, ranks)
    else:  # embedding and loss take a block's place each
        assert slowest in (most_blocks(layers, ranks), most_blocks(layers + 2, ranks))


def test_llama_3_405b_has_eight_layers_on_each_of_16_ranks():
    """126 layers, embedding and head counted as one each (arXiv 2407.21783, section 3.3.2)."""
    slowest = slowest_layers(catalogue_model("llama3.1-405b"), layouts(ParallelPlan(pp=16), ParallelPlan(pp=14)))
    assert slowest.tolist() == [8, 9]


@pytest.mark.parametrize("model", [LLAMA_8B, MIXTRAL], ids=["llama3-8b", "mixtral-8x7b"])
def test_parameters_of_all_ranks_are_the_models(model):
    shape = layouts(ParallelPlan(tp=2, pp=4, dp_shard=8, ep=4 if model.experts else 1))
    dense, experts = rank_parameters(model, shape)
    assert (dense * 2 * 4 + experts * 2 * 4 * shape.ep)[0] == pytest.approx(total_parameters(model))


def test_chunks_of_one_rank_add_up():
    plans = [ParallelPlan(pp=4, virtual_stages=each, schedule="interleaved") for each in (1, 2, 8)]
    assert slowest_layers(LLAMA_8B, layouts(*plans)).tolist() == [8, 8, 8]
    uneven = slowest_layers(replace(LLAMA_8B, layers=33), layouts(ParallelPlan(pp=4, virtual_stages=2)))
    assert uneven[0] == 10  # five blocks in the fullest chunk, two chunks
