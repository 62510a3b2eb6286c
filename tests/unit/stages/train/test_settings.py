"""What follows from a resolved run."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainwright.spec.sections.model import ModelSection
from trainwright.stages.train.settings import Settings

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
