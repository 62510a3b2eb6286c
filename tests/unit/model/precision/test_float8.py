"""Products in float8, as torchao computes them on a processor, beside bf16's."""

from __future__ import annotations

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.layers import Linear
from trainwright.model.precision.float8 import Float8Linear, convert
from trainwright.model.tasks.next_token import NextToken
from trainwright.spec.sections.model import ModelSection

pytest.importorskip("torchao", reason="pip install 'trainwright[float8]'")

ROUNDING = 0.15
"""Gradients that enter a product have two bits behind the first one (e5m2), and are up to an eighth away."""


def network(family: str = "llama", **shape: int):
    sizes = {"layers": 2, "width": 64, "heads": 4, "context_tokens": 32} | shape
    spec = ModelSection(family=family, tied=False, **sizes).spec(vocabulary=96)
    made = build_network(spec, dtype=torch.bfloat16)
    made.initialise(5)
    return made


def loss_and_gradients(made) -> tuple[float, dict[str, torch.Tensor]]:
    tokens = torch.randint(1, 96, (4, 33), generator=torch.Generator().manual_seed(1))
    task = NextToken(sequence_tokens=32)
    inputs = task.inputs(made, {"tokens": tokens})
    loss, weight = task.loss(made, task.hidden(made, inputs), inputs)
    (loss / weight).backward()
    return float(loss.detach() / weight), {name: parameter.grad for name, parameter in made.named_parameters()}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_loss_and_gradients_are_near_bf16s(family) -> None:
    plain, narrow = network(family), network(family)
    convert(narrow)
    loss, gradients = loss_and_gradients(plain)
    other, others = loss_and_gradients(narrow)
    assert other != loss, "it rounds otherwise"
    assert other == pytest.approx(loss, rel=5e-3)
    assert others.keys() == gradients.keys()
    whole = float(torch.stack([each.norm() for each in gradients.values()]).norm())
    for name, truth in gradients.items():
        assert others[name].dtype == torch.float32
        assert float((others[name] - truth).norm()) < ROUNDING * max(float(truth.norm()), 0.05 * whole), name


def test_head_norms_and_embedding_are_left_alone() -> None:
    made = network()
    before = dict(made.named_parameters())
    assert convert(made) == 2 * 7
    after = dict(made.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items()) and after.keys() == before.keys()
    assert type(made.head) is Linear
    assert all(type(each) is not Linear for each in made.blocks.modules())
    assert not any(isinstance(each, Float8Linear) for name, each in made.named_modules() if "norm" in name)


def test_matrices_of_other_sizes_stay_in_bf16() -> None:
    made = network(ffn_width=72)
    assert convert(made) == 2 * 4
    loss_and_gradients(made)
    with pytest.raises(RecipeError, match="multiples of 16"):
        convert(network(width=24, ffn_width=40))


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_that_no_kernel_takes_are_multiplied_in_bf16(rows) -> None:
    plain, narrow = network().blocks[0].ffn.up, network()
    convert(narrow)
    x = torch.randn(rows, 64).bfloat16()
    assert torch.equal(narrow.blocks[0].ffn.up(x), plain(x))
