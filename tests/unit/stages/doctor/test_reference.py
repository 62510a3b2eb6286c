import pytest
import torch

from trainwright.runtime.stopwatch import Stopwatch
from trainwright.stages.doctor import reference
from trainwright.stages.doctor.reference import Shape, model_spec, shapes

SMALL = Shape(family="llama", width=64, ffn_width=96, sequences=1, sequence_tokens=16)


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setattr(reference, "CPU_SHAPES", (SMALL, Shape(**{**vars_of(SMALL), "family": "gpt2"})))
    return Stopwatch(torch.device("cpu"), budget_s=0.0)


def vars_of(shape):
    return {name: getattr(shape, name) for name in shape.__dataclass_fields__}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_shape_is_a_network_that_exists(kind):
    known = shapes(torch.device(kind))
    assert all(model_spec(shape).problems() == () for shape in known)
    assert {shape.family for shape in known} == {"llama", "gpt2"}
    growth = reference.CPU_GROWTH if kind == "cpu" else reference.CUDA_GROWTH
    depths = {}
    for shape in growth:
        depths.setdefault(shape.width, set()).add(shape.layers)
    assert all(len(found) == 2 for found in depths.values())


def test_the_fastest_precision_is_timed_on_all_shapes(watch):
    found = list(reference.probe_blocks(watch, ("fp32", "bf16")))
    assert [(probe.dtype, probe.model.family) for probe in found] == [
        ("fp32", "llama"), ("bf16", "llama"), ("bf16", "gpt2"),
    ]  # fmt: skip
    assert all(probe.forward.median_s > 0 and probe.backward.median_s > 0 for probe in found)


def test_losses_are_timed_with_their_gradient(monkeypatch, watch):
    monkeypatch.setattr(reference, "LOSSES", ((32, 16, 64),))
    found = list(reference.probe_losses(watch, ("fp32", "bf16")))
    assert [(probe.dtype, probe.vocabulary) for probe in found] == [("fp32", 64), ("bf16", 64)]


def test_memory_grows_with_depth(monkeypatch):
    wide = [Shape(family="llama", width=256, ffn_width=768, sequences=2, sequence_tokens=256, layers=n) for n in (1, 4)]
    monkeypatch.setattr(reference, "CPU_GROWTH", tuple(wide))
    thin, deep = reference.probe_growth(torch.device("cpu"), "fp32")
    assert deep.grown_bytes > thin.grown_bytes > 0


def test_muon_is_timed_matrix_by_matrix(monkeypatch, watch):
    monkeypatch.setattr(reference, "MUON_MATRICES", ((8, 4),))
    (found,) = reference.probe_muon(watch)
    assert (found.rows, found.columns) == (8, 4)
    assert found.timing.median_s > 0
