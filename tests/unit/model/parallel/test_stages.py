"""What each rank of a pipeline has of a network, and that stages in turn compute what the whole does."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder, spec
from trainwright.core.errors import RecipeError
from trainwright.model.parallel.stages import keep_stages, pipeline_of
from trainwright.runtime.mesh import mesh_of
from trainwright.spec.workload import ParallelPlan

LAYOUTS = (
    ParallelPlan(pp=2),
    ParallelPlan(pp=4, schedule="zero_bubble"),
    ParallelPlan(pp=2, schedule="interleaved", virtual_stages=2),
    ParallelPlan(pp=2, schedule="dualpipe"),
)


def owners(parallel: ParallelPlan) -> tuple[int, ...]:
    return pipeline_of(spec(layers=4), parallel).owners


def test_stages_go_round_the_ranks_or_forth_and_back() -> None:
    assert owners(ParallelPlan(pp=4)) == (0, 1, 2, 3)
    assert owners(ParallelPlan(pp=2, schedule="interleaved", virtual_stages=2)) == (0, 1, 0, 1)
    assert owners(ParallelPlan(pp=2, schedule="dualpipe")) == (0, 1, 1, 0)
    assert pipeline_of(spec(layers=4), ParallelPlan(pp=2, schedule="dualpipe")).of(0) == (0, 3)


@pytest.mark.parametrize("layers", [4, 5, 9])
@pytest.mark.parametrize("parallel", LAYOUTS)
def test_every_block_is_in_one_stage(parallel: ParallelPlan, layers: int) -> None:
    pipeline = pipeline_of(spec(layers=layers), parallel)
    assert [block for part in pipeline.parts for block in part] == list(range(layers))
    assert sorted(stage for rank in range(parallel.pp) for stage in pipeline.of(rank)) == list(
        range(len(pipeline.parts))
    )


def test_more_stages_than_blocks_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"cut into the stages .*3 blocks are fewer than 4 stages.*at most 3"):
        pipeline_of(spec(), ParallelPlan(pp=2, schedule="dualpipe"))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("parallel", LAYOUTS)
def test_stages_in_turn_compute_what_the_whole_network_does(parallel: ParallelPlan, family: str, tied: bool) -> None:
    whole = decoder(family, layers=4, tied=tied)
    tokens = torch.randint(0, 320, (2, 9), generator=torch.Generator().manual_seed(0))
    inputs = {"documents": torch.tensor([[0] * 4 + [1] * 5] * 2), "positions": torch.tensor([[*range(4), *range(5)]])}
    pipeline = pipeline_of(whole.spec, parallel)
    ranks = []
    for rank in range(parallel.pp):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=parallel.pp)
        network = decoder(family, layers=4, tied=tied)
        keep_stages(network, mesh_of(parallel, "cpu"))
        ranks.append(network)
        dist.destroy_process_group()
    x = tokens
    for part, owner in zip(pipeline.parts, pipeline.owners, strict=True):
        x = ranks[owner](x, part=part, **inputs)
    assert torch.equal(x, whole(tokens, **inputs))
    assert torch.equal(ranks[pipeline.owners[-1]].logits(x), whole.logits(x))


@pytest.mark.parametrize("tied", [True, False])
def test_ranks_have_every_parameter_once_and_a_tied_embedding_at_both_ends(tied: bool) -> None:
    whole = decoder("gpt2", layers=4, tied=tied)
    parallel = ParallelPlan(pp=4)
    names: list[str] = []
    for rank in range(parallel.pp):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=parallel.pp)
        network = decoder("gpt2", layers=4, tied=tied)
        keep_stages(network, mesh_of(parallel, "cpu"))
        assert set(network.tables()) == {
            name for name in ("embedding", "positions") if name in dict(network.named_parameters())
        }
        assert all(name.startswith(f"blocks.{rank}.") for name in network.matrices())
        names += [name for name, _ in network.named_parameters()]
        dist.destroy_process_group()
    assert sorted(names) == sorted([name for name, _ in whole.named_parameters()] + ["embedding"] * tied)
