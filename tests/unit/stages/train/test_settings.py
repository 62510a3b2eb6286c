"""Torch's switches are set for training and put back after it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from trainwright.spec.sections.model import ModelSection
from trainwright.stages.train.settings import Settings, torch_settings

SETTINGS = Settings(
    model=ModelSection(layers=1, width=8, heads=1).spec(vocabulary=10),
    steps=3,
    asked_warmup_steps=1,
    epoch_tokens=12,
    sequence_tokens=4,
    batch_sequences=2,
    micro_batch=1,
    precision="fp32",
    dtype=torch.float32,
    compiled=False,
    threads=1,
    deterministic=True,
    device=torch.device("cpu"),
    peak_flops_per_s=None,
)


def test_batch_tokens() -> None:
    assert SETTINGS.batch_tokens == 8


def test_a_run_says_how_often_it_reads_its_data_and_that_its_warm_up_is_cut() -> None:
    assert SETTINGS.notes() == ["3 updates of 8 tokens read the train split 2 times"]
    for asked, warmup in ((3, 3), (4, 3)):
        settings = replace(SETTINGS, asked_warmup_steps=asked)
        assert settings.warmup_steps == warmup
        assert len(settings.notes()) == (1 if asked == warmup else 2)
    assert settings.notes()[1].startswith("the warm-up (4 updates) is longer than the run (3): it is cut to the run")


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


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_algorithms_are_those_asked_for(deterministic) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with torch_settings(replace(SETTINGS, deterministic=deterministic)):
        assert torch.are_deterministic_algorithms_enabled() == deterministic
    assert torch.are_deterministic_algorithms_enabled() == before


@pytest.mark.parametrize("deterministic", [False, True])
def test_cublas_has_a_fixed_workspace_where_products_must_be_deterministic(monkeypatch, deterministic) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with torch_settings(replace(SETTINGS, device=torch.device("cuda"), deterministic=deterministic)):
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if deterministic else None)
