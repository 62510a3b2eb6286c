"""Which tokens a rank has, and what its network hears of the others.

That whole trainings equal one process's is held by ``tests/parallel``.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder
from trainwright.core.errors import RecipeError
from trainwright.model.network import Network
from trainwright.model.parallel.context import Division, ExchangedHeads, GatheredKeys, divide, division_of, stretches
from trainwright.runtime.mesh import mesh_of
from trainwright.spec.workload import ParallelPlan


@pytest.fixture
def rank_one_of_two():
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("way", ["gather", "ulysses"])
def test_every_token_lies_on_one_rank(way, ranks) -> None:
    tokens = 6 * ranks
    found = [
        token for rank in range(ranks) for part in stretches(way, tokens, rank=rank, ranks=ranks) for token in part
    ]
    assert sorted(found) == list(range(tokens))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_where_keys_are_gathered_all_ranks_have_the_same_work(ranks) -> None:
    tokens = 4 * ranks
    seen = [
        sum(token + 1 for part in stretches("gather", tokens, rank=rank, ranks=ranks) for token in part)
        for rank in range(ranks)
    ]
    assert len(set(seen)) == 1
    assert sum(seen) == tokens * (tokens + 1) // 2


def test_a_network_hears_which_ranks_have_its_other_tokens(rank_one_of_two) -> None:
    for way, made in (("gather", GatheredKeys), ("ulysses", ExchangedHeads)):
        network = decoder()
        mesh = mesh_of(ParallelPlan(cp=2, context=way), "cpu")
        divide(network, mesh)
        division = network.context_of.__self__
        assert isinstance(division, Division)
        assert (division.way, division.rank, division.ranks) == (way, 1, 2)
        places = division_of(mesh).places(8, torch.device("cpu"))
        assert places.tolist() == ([2, 3, 4, 5] if way == "gather" else [4, 5, 6, 7])
        assert isinstance(network.context_of(None, places, torch.float32).__self__, made)


@pytest.mark.parametrize("way", ["gather", "ulysses"])
def test_a_kernel_that_is_told_what_tokens_see_is_told_it_of_each_stretch(rank_one_of_two, way) -> None:
    told = []
    network = decoder()
    network.masked_kernel_of = lambda documents, **where: told.append(
        (documents.shape[1], where["first"], where["keys"])
    )
    divide(network, mesh_of(ParallelPlan(cp=2, context=way), "cpu"))
    places = division_of(mesh_of(ParallelPlan(cp=2, context=way), "cpu")).places(8, torch.device("cpu"))
    network.context_of(torch.zeros(3, 8, dtype=torch.long), places, torch.float32)
    assert told == ([(4, 2, 4), (6, 4, 6)] if way == "gather" else [(8, 0, 8)])


def test_without_places_a_divided_network_is_a_whole_one(rank_one_of_two) -> None:
    """Evaluation reads whole sequences on every rank, and exchanges nothing."""
    tokens = torch.arange(12).view(2, 6)
    network, whole = decoder(), decoder()
    divide(network, mesh_of(ParallelPlan(cp=2), "cpu"))
    assert torch.equal(network(tokens), whole(tokens))


def test_a_network_of_another_kind_is_not_divided(rank_one_of_two) -> None:
    class Other(Network):
        forward = head_weight = matrices = tables = initial = None  # type: ignore[assignment]

    with pytest.raises(RecipeError, match=r"cannot be divided .*Other.*set cp=1"):
        divide(Other(), mesh_of(ParallelPlan(cp=2), "cpu"))
