from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainwright.model.experts.routing import Router
from trainwright.spec.parts.experts import Experts

EXPERTS = Experts(count=6, active=2, ffn_width=8)


@pytest.fixture
def router_of(tiny):
    def made(**different) -> Router:
        router = Router(replace(tiny.spec("llama"), experts=replace(EXPERTS, **different)))
        with torch.no_grad():
            torch.nn.init.normal_(router.weight, generator=torch.Generator().manual_seed(1))
        return router

    return made


def tokens(router: Router, count: int = 50) -> torch.Tensor:
    return torch.randn(count, router.weight.shape[1], generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_weights_of_a_token_sum_to_the_scale(router_of, scores):
    router = router_of(scores=scores, scale=2.5)
    torch.testing.assert_close(router(tokens(router)).weights.sum(-1), torch.full((50,), 2.5))


def test_softmax_of_the_chosen_is_normalised_softmax_of_all(router_of):
    """gpt-oss takes the softmax after the choice."""
    router = router_of()
    routing = router(tokens(router))
    after = routing.logits.gather(1, routing.chosen).softmax(-1)
    torch.testing.assert_close(routing.weights, after)


def test_a_correction_moves_the_choice_and_no_weight(router_of):
    router = router_of(scores="sigmoid", balance="bias", normalised=False)
    router.correction[4] = 10.0
    routing = router(tokens(router))
    assert (routing.chosen == 4).any(-1).all()
    torch.testing.assert_close(routing.weights, routing.scores.gather(1, routing.chosen))
    assert "correction" in router.state_dict() and "correction" not in dict(router.named_parameters())


def test_groups_bound_the_choice(router_of):
    """By brute force over groups."""
    router = router_of(groups=3, active_groups=1, group_best=2)
    routing = router(tokens(router))
    for scores, chosen in zip(routing.scores.detach(), routing.chosen, strict=True):
        sums = [float(scores[first : first + 2].sum()) for first in (0, 2, 4)]
        best = 2 * sums.index(max(sums))
        assert set(chosen.tolist()) == {best, best + 1}


def test_products_are_fp32_of_weights_in_the_dtype_of_activations(router_of):
    router = router_of()
    x = tokens(router).bfloat16()
    routing = router(x)
    assert routing.scores.dtype == routing.weights.dtype == torch.float32
    torch.testing.assert_close(routing.logits, x.float() @ router.weight.bfloat16().float().T)


def test_a_correction_keeps_its_precision(router_of):
    router = router_of(balance="bias")
    router.correction.fill_(0.001)
    assert router.to(torch.bfloat16).correction.dtype == torch.float32
    assert router.correction.tolist() == pytest.approx([0.001] * 6)
    assert router.weight.dtype == torch.bfloat16
