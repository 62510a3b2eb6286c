"""Parameters of a tensor-parallel rank, held to those of a network that is cut."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder, spec
from trainwright.model.parallel.tensor import cut_matrices
from trainwright.planner.counts.parallel.tensor import rank_parameters
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime.mesh import mesh_of
from trainwright.spec.workload import ParallelPlan


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize(
    ("family", "shape"), [("llama", {}), ("gpt2", {}), ("llama", {"classes": 3, "labels": ("a", "b", "c")})], ids=str
)
def test_a_rank_has_what_the_network_keeps(family: str, shape: dict[str, object], tp: int) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=tp)
    network = decoder(family, **shape)
    cuts = cut_matrices(network, mesh_of(ParallelPlan(tp=tp), "cpu"))
    dist.destroy_process_group()
    counted = rank_parameters(spec(family, **shape), tp)
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    assert counted.blocks == sum(size for name, size in sizes.items() if name.startswith("blocks."))
    assert counted.total == sum(sizes.values())
    keys = [name for name in cuts if cuts[name].summed and cuts[name].parts[0] != cuts[name].parts[-1]]
    assert counted.copied == sum(sizes[name] for name in keys)
    assert counted.stream == sum(sizes[name] for name in cuts if cuts[name].summed and name not in keys)


def test_alone_a_rank_has_everything() -> None:
    shape = spec()
    assert rank_parameters(shape, 1).total == total_parameters(shape)
    assert rank_parameters(shape, 1).copied == 0
