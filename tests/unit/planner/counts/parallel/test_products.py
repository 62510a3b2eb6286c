"""The product of each matrix on one rank, held to the whole ones."""

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parallel.products import divided, product_shape, slowest_elements
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.planner.counts.ranks import rank_parameters
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 64, steps=1, precision="bf16", optimizer="adamw")
MIXTRAL = catalogue_model("mixtral-8x7b")


def layouts(**plan):
    return Layouts.of([ParallelPlan(**plan)], ["none"], WORK)


def test_tensor_parallelism_leaves_narrow_experts_whole():
    """Of DeepSeek-V3's 256 experts a rank of 64 has 4 whole ones, tensor parallelism or not, and as many rows."""
    plans = [{"dp_shard": 64, "ep": 64}, {"dp_shard": 32, "tp": 2, "ep": 64}]
    model = catalogue_model("deepseek-v3")
    one, two = (rank_parameters(model, layouts(**plan))[1][0] for plan in plans)
    assert one == two
    experts = next(each for each in matrices(model) if each.part == "experts")
    shapes = [product_shape(experts, model, layouts(**plan), np.array([512.0]), np.ones(1)) for plan in plans]
    assert [float(shape.rows[0]) for shape in shapes] == [64 * 512 * 8 / 256, 32 * 512 * 8 / 256]


def test_a_matrix_is_cut_by_outputs_or_by_inputs_or_not_at_all():
    cut = layouts(tp=8)
    found = {each.name: divided(each, MIXTRAL, cut) for each in matrices(MIXTRAL) if each.part != "experts"}
    assert found["query"] == (4096 / 8, 4096, 32) and found["output"] == (4096, 4096 / 8, 32)
    assert found["router"] == (8, 4096, 32)


@pytest.mark.parametrize("plan", [{"dp_shard": 8, "ep": 8}, {"tp": 2, "dp_shard": 4, "ep": 4}, {"pp": 4}])
def test_ranks_together_have_every_weight_of_the_blocks(plan):
    """Routers and, without a division of theirs, attention's matrices are on each rank again."""
    some = layouts(**plan)
    tp, pp, ep = (plan.get(name, 1) for name in ("tp", "pp", "ep"))
    blocks = [each for each in matrices(MIXTRAL) if each.part in BLOCK_PARTS]
    attention, experts, router = 2 * 4096**2 + 2 * 1024 * 4096, 8 * 3 * 4096 * 14336, 8 * 4096
    rank = 32 / pp * (attention / tp + experts / ep / tp + router)
    assert slowest_elements(MIXTRAL, some, blocks) == rank
