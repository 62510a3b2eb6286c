"""One gradient whatever the micro batches; no token looks into another document."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

CPU = torch.device("cpu")
END = 0


def make_step(family="llama", *, micro_batch: int, end_of_text: int | None = None, recompute="none"):
    spec = ModelSection(family=family, layers=2, width=32, heads=4, context_tokens=24).spec(vocabulary=61)
    network = build_network(spec, recompute=recompute)
    network.initialise(5)
    clock = PhaseClock(CPU)
    clock.start()
    task = NextToken(sequence_tokens=16, end_of_text=end_of_text)
    optimizers = Optimizers(network, AdamWSection())
    return TrainingStep(task, network, optimizers, clock, micro_batch=micro_batch, clip_norm=None, compiled=False)


def gradients(step: TrainingStep, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    step.optimizers.zero_grad()
    step.gradient({"tokens": tokens})
    return {name: parameter.grad.clone() for name, parameter in step.network.named_parameters()}


def ragged(rows: int, *, seed: int = 1) -> torch.Tensor:
    """Sequences of different lengths: what is missing at the end counts for nothing."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 61, (rows, 17), generator=generator)
    for row in range(rows):
        tokens[row, 17 - row * 2 % 13 :] = IGNORE
    return tokens


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("end_of_text", [None, END])
def test_eight_ones_four_twos_and_one_eight_have_one_gradient(family, end_of_text) -> None:
    tokens = ragged(8)
    whole = gradients(make_step(family, micro_batch=8, end_of_text=end_of_text), tokens)
    for micro_batch in (1, 2, 3, 4):
        parts = gradients(make_step(family, micro_batch=micro_batch, end_of_text=end_of_text), tokens)
        for name in whole:
            torch.testing.assert_close(parts[name], whole[name], atol=1e-6, rtol=1e-6, msg=name)


def test_the_gradient_is_that_of_the_mean_cross_entropy_over_all_targets() -> None:
    step, tokens = make_step(micro_batch=3), ragged(8)
    ours = gradients(step, tokens)
    model = step.network
    model.zero_grad()
    logits = model.logits(model(tokens[:, :-1].clamp_min(0)))
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=IGNORE).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-6, rtol=1e-6, msg=name)


def test_recomputation_gives_the_same_gradient() -> None:
    tokens = ragged(4)
    kept = gradients(make_step(micro_batch=2), tokens)
    for recompute in ("selective", "full"):
        again = gradients(make_step(micro_batch=2, recompute=recompute), tokens)
        for name in kept:
            assert torch.equal(kept[name], again[name]), name


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_with_masking_each_document_is_on_its_own(family) -> None:
    """Two documents in one sequence cost what they cost alone: nothing leaks, and positions start anew."""
    step = make_step(family, micro_batch=1, end_of_text=END)
    generator = torch.Generator().manual_seed(2)
    first, second = torch.randint(1, 61, (7,), generator=generator), torch.randint(1, 61, (8,), generator=generator)
    end = torch.tensor([END])
    both = torch.cat([end, first, end, second, end]).unsqueeze(0)
    apart = [torch.cat([end, document, end]).unsqueeze(0) for document in (first, second)]
    together, _ = step.loss({"tokens": both})
    alone = sum(step.loss({"tokens": tokens})[0] for tokens in apart)
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-6)
    unmasked, _ = make_step(family, micro_batch=1).loss({"tokens": both})
    assert abs(unmasked - alone) > 1e-3, "without masking the first document would be seen"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_with_masking_no_gradient_flows_from_a_document_to_another(family) -> None:
    """The loss of the second document does not depend on any token embedding of the first."""
    model = make_step(family, micro_batch=1).network
    tokens = torch.tensor([[END, 5, 6, 7, END, 8, 9, 10]])
    hidden_of = {}
    for first in (5, 33):
        changed = tokens.clone()
        changed[0, 1] = first
        documents = (changed == END).cumsum(dim=1)
        hidden_of[first] = model(changed, documents=documents)
    assert torch.equal(hidden_of[5][0, 4:], hidden_of[33][0, 4:])
    assert not torch.equal(hidden_of[5][0, 1:4], hidden_of[33][0, 1:4])


COMPILED = """
import torch
from trainwright.model.build import build_network
from trainwright.model.dropout import sample_keys
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

rates = {"residual": 0.1, "embedding": 0.1, "attention": 0.1}
section = ModelSection(layers=2, width=32, heads=4, context_tokens=24, dropout=rates)
tokens = torch.randint(1, 61, (4, 17), generator=torch.Generator().manual_seed(1))
gradients = []
for compiled in (False, True):
    network = build_network(section.spec(vocabulary=61))
    network.initialise(5)
    clock = PhaseClock(torch.device("cpu"))
    clock.start()
    step = TrainingStep(
        NextToken(sequence_tokens=16), network, Optimizers(network, AdamWSection()), clock, micro_batch=2,
        clip_norm=None, compiled=compiled,
    )
    step.gradient({"tokens": tokens, "samples": sample_keys(3, 4, range(4))})
    gradients.append([parameter.grad for parameter in network.parameters()])
for eager, compiled in zip(*gradients, strict=True):
    torch.testing.assert_close(compiled, eager, atol=1e-6, rtol=1e-4)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_and_eager_steps_agree() -> None:
    """In a process without run-time shape checks, which torch.compile cannot see through."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
