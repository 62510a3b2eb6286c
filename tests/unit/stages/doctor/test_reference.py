import pytest
import torch

from trainwright.runtime.timing.stopwatch import Stopwatch
from trainwright.stages.doctor import reference
from trainwright.stages.doctor.effort import BlockShape

SMALL = BlockShape("llama", 64, 96, 1, 16)


@pytest.fixture
def watch():
    return Stopwatch(torch.device("cpu"), budget_s=0.0)


def test_stacks_are_timed_forward_and_backward(watch):
    gpt2 = BlockShape("gpt2", 64, 96, 1, 16)
    probes = list(reference.probe_blocks(watch, [(SMALL, "fp32"), (SMALL, "bf16"), (gpt2, "bf16")]))
    assert [(probe.dtype, probe.model.family) for probe in probes] == [
        ("fp32", "llama"),
        ("bf16", "llama"),
        ("bf16", "gpt2"),
    ]
    assert all(probe.forward.median_s > 0 and probe.backward.median_s > 0 for probe in probes)


def test_losses_are_timed_with_their_gradient(watch):
    probes = list(reference.probe_losses(watch, [((32, 16, 64), "fp32"), ((32, 16, 64), "bf16")]))
    assert [(probe.dtype, probe.vocabulary) for probe in probes] == [("fp32", 64), ("bf16", 64)]


def test_memory_grows_with_depth():
    entries = [(BlockShape("llama", 256, 768, 2, 256, layers), "fp32") for layers in (1, 4)]
    thin, deep = reference.probe_growth(torch.device("cpu"), entries)
    assert deep.grown_bytes > thin.grown_bytes > 0


def test_muon_is_timed_matrix_by_matrix(watch):
    (probe,) = reference.probe_muon(watch, [(8, 4)])
    assert (probe.rows, probe.columns) == (8, 4)
    assert probe.timing.median_s > 0
