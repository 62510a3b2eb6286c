"""Torch's switches are set for training and put back after it."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainwright.spec.recipe import ModelSection
from trainwright.stages.train.settings import Settings, torch_settings

SETTINGS = Settings(
    model=ModelSection(layers=1, width=8, heads=1).spec(vocabulary=10), steps=3, warmup_steps=1, sequence_tokens=4,
    batch_sequences=2, micro_batch=1, precision="fp32", dtype=torch.float32, compiled=False, threads=1,
    device=torch.device("cpu"), peak_flops_per_s=None,
)  # fmt: skip


def test_batch_tokens() -> None:
    assert SETTINGS.batch_tokens == 8


def test_switches_hold_inside_and_come_back_after_an_error() -> None:
    torch.set_num_threads(1)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        with torch_settings(replace(SETTINGS, threads=2)):
            assert torch.get_num_threads() == 2
            assert torch.are_deterministic_algorithms_enabled()
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled() == before
