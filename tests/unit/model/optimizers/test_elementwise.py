"""SGD against torch's; Lion and schedule-free AdamW against their papers' algorithms, written out in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.model.optimizers.base import CHUNK_ELEMENTS
from trainwright.model.optimizers.elementwise import Lion, ScheduleFreeAdamW, Sgd

STEPS = 10


def parameter(size=300, seed=0):
    return torch.nn.Parameter(torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def gradients(size=300):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, dtype=torch.float64, generator=generator) for _ in range(STEPS)]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_is_that_of_torch(momentum, nesterov, decay):
    settings = {"lr": 0.1, "momentum": momentum, "nesterov": nesterov, "weight_decay": decay}
    ours, theirs = parameter(), parameter()
    mine, torchs = Sgd([ours], **settings), torch.optim.SGD([theirs], **settings)
    for gradient in gradients():
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert bool(mine.state[ours]) == bool(momentum), "plain descent keeps nothing"


def test_lion_is_the_program_of_its_paper():
    """Chen et al., 2023, program 1."""
    ours, (beta1, beta2), lr, decay = parameter(), (0.9, 0.99), 0.01, 0.3
    weight, mean = ours.detach().clone(), torch.zeros(300, dtype=torch.float64)
    optimizer = Lion([ours], lr=lr, betas=(beta1, beta2), weight_decay=decay)
    for gradient in gradients():
        ours.grad = gradient.clone()
        optimizer.step()
        update = (beta1 * mean + (1 - beta1) * gradient).sign() + decay * weight
        mean = beta2 * mean + (1 - beta2) * gradient
        weight = weight - lr * update
    torch.testing.assert_close(ours.detach(), weight, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rates", [[0.02] * STEPS, [0.02 * min(1, (t + 1) / 4) for t in range(STEPS)]])
def test_schedule_free_adamw_is_the_algorithm_of_its_paper(rates):
    """Defazio et al., 2024, algorithm 1, with a warm-up too."""
    ours, (beta1, beta2), eps, decay = parameter(), (0.9, 0.99), 1e-8, 0.1
    x = z = ours.detach().clone()
    square, total = torch.zeros(300, dtype=torch.float64), 0.0
    optimizer = ScheduleFreeAdamW([ours], lr=1.0, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    assert torch.equal(optimizer.averaged(ours), x), "the average of no update is where it began"
    for t, (gradient, peak) in enumerate(zip(gradients(), rates, strict=True), start=1):
        ours.grad = gradient.clone()
        optimizer.param_groups[0]["lr"] = peak
        optimizer.step()
        rate = peak * (1 - beta2**t) ** 0.5
        y = (1 - beta1) * z + beta1 * x
        square = beta2 * square + (1 - beta2) * gradient**2
        z = z - rate * gradient / (square.sqrt() + eps) - rate * decay * y
        total += rate**2
        x = (1 - rate**2 / total) * x + rate**2 / total * z
        torch.testing.assert_close(ours.detach(), (1 - beta1) * z + beta1 * x, atol=1e-10, rtol=0)
        torch.testing.assert_close(optimizer.averaged(ours), x, atol=1e-10, rtol=0)


RULES = {
    "sgd": lambda params: Sgd(params, lr=0.1, momentum=0.9, weight_decay=0.1),
    "lion": lambda params: Lion(params, lr=0.1, weight_decay=0.1),
    "schedule-free": lambda params: ScheduleFreeAdamW(params, lr=0.1, weight_decay=0.1),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_shard_is_updated_as_the_same_elements_of_the_whole(rule):
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh, whole = init_device_mesh("cpu", (2,)), parameter()
        shard = torch.nn.Parameter(DTensor.from_local(whole.detach()[150:].clone(), mesh, [Shard(0)], run_check=False))
        alone, ranked = rule([whole]), rule([shard])
        for gradient in gradients()[:3]:
            whole.grad = gradient.clone()
            shard.grad = DTensor.from_local(gradient[150:].clone(), mesh, [Shard(0)], run_check=False)
            alone.step()
            ranked.step()
        assert torch.equal(shard.to_local(), whole[150:])
        if isinstance(ranked, ScheduleFreeAdamW):
            assert torch.equal(ranked.averaged(shard).to_local(), alone.averaged(whole)[150:])
    finally:
        dist.destroy_process_group()


def test_long_parameters_are_updated_in_every_part():
    ours = parameter(2 * CHUNK_ELEMENTS + 5)
    before = ours.detach().clone()
    ours.grad = torch.ones_like(ours)
    Lion([ours], lr=0.5).step()
    assert torch.equal(ours.detach(), before - 0.5)
