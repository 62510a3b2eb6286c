"""What a rank keeps of every matrix; that it trains as one process does is held by ``tests/parallel``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder
from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Decoder
from trainwright.model.parallel.parallelize import parallelize
from trainwright.model.parallel.tensor import TensorDecoder, cut_matrices, even, key_heads
from trainwright.runtime.cuts import cut_of
from trainwright.runtime.mesh import Mesh, mesh_of
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.pipeline.relay import Relay


@contextmanager
def rank(index: int, parallel: ParallelPlan) -> Iterator[Mesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=index, world_size=parallel.ranks)
    try:
        yield mesh_of(parallel, "cpu")
    finally:
        dist.destroy_process_group()


def cut(index: int, make: Callable[[], Decoder] = decoder, **layout: object) -> Decoder:
    with rank(index, ParallelPlan(**layout)) as mesh:
        network = make()
        parallelize(network, mesh, compiled=False)
    return network


def test_parts_are_neighbours_of_about_one_size() -> None:
    assert even(7, 3) == (range(2), range(2, 4), range(4, 7))
    assert key_heads(8, 4) == (range(2), range(2, 4), range(4, 6), range(6, 8))


def test_more_ranks_than_key_heads_keep_copies() -> None:
    assert key_heads(2, 4) == (range(1), range(1), range(1, 2), range(1, 2))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_ranks_have_all_of_every_matrix_between_them(family: str) -> None:
    whole = dict(decoder(family).named_parameters())
    ranks = [dict(cut(index, lambda: decoder(family), tp=2).named_parameters()) for index in range(2)]
    for name, parameter in whole.items():
        parts = [each[name] for each in ranks]
        found = cut_of(parts[0])
        assert found is not None
        assert found.whole == parameter.shape
        if found.summed:
            assert all(torch.equal(part, parameter) for part in parts)
            assert parameter.ndim == 1 or name == "positions"
        else:
            assert torch.equal(torch.cat([part.detach() for part in parts], found.dim), parameter)


def test_key_heads_of_neighbours_are_copies_whose_gradients_are_added_up() -> None:
    first, second, third, _ = (cut(index, tp=4, sequence_parallel=False) for index in range(4))
    keys = [network.blocks[0].attention.key.weight for network in (first, second, third)]
    assert torch.equal(keys[0], keys[1])
    assert not torch.equal(keys[1], keys[2])
    found = cut_of(keys[0])
    assert found is not None
    assert found.summed
    assert cut_of(first.blocks[0].attention_norm.weight) is None


def test_a_head_of_classes_stays_whole() -> None:
    network = cut(0, lambda: decoder(classes=3, labels=("a", "b", "c"), tied=False), tp=2)
    assert cut_of(network.head_weight) is None
    assert network.head_weight.shape == (3, 32)
    assert network.logits(torch.zeros(2, 32)).shape == (2, 3)


def test_whole_logits_are_on_no_rank() -> None:
    with pytest.raises(RecipeError, match=r"train\.exec\.layout: whole logits lie on no .*tp=2.*head_loss"):
        cut(1, tp=2).logits(torch.zeros(2, 32))


def test_shapes_of_what_a_rank_computes() -> None:
    tokens = torch.zeros(3, 8, dtype=torch.long)
    with rank(1, ParallelPlan(tp=2)) as mesh:
        network = decoder("gpt2", dropout=Dropout(residual=0.1, embedding=0.1, attention=0.1))
        network.train()
        cut_matrices(network, mesh)
        assert isinstance(network, TensorDecoder)
        samples = torch.arange(3)
        stream = network(tokens, samples=samples, part=range(2))
        assert stream.shape == (3, 4, 32)
        assert network.stream_tokens(8) == 4
        assert network(stream, samples=samples, part=range(2, 3)).shape == (3, 8, 32)
        losses = network.token_losses(torch.zeros(5, 32), torch.zeros(5, dtype=torch.long))
        assert losses.shape == (5,)


def test_a_network_of_its_own_is_refused() -> None:
    other = Relay(decoder(), decoder())
    with rank(0, ParallelPlan(tp=2)) as mesh, pytest.raises(RecipeError, match="cannot be shared.*Relay.*set tp=1"):
        cut_matrices(other, mesh)


def test_heads_that_are_here_drop_what_they_drop_in_the_whole() -> None:
    network = cut(1, lambda: decoder(dropout=Dropout(attention=0.1)), tp=2)
    assert network.dropouts is not None
    assert network.dropouts.first_head == 2
