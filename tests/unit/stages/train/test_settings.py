"""What follows from a resolved run."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes
from trainwright.spec.sections.model import ModelSection
from trainwright.stages.train.settings import Settings

SETTINGS = Settings(
    model=ModelSection(layers=1, width=8, heads=1).spec(vocabulary=10),
    steps=3,
    asked_warmup_steps=1,
    epoch_tokens=12,
    sequence_tokens=4,
    sizes=BatchSizes(full=8),
    micro_batch=1,
    precision="fp32",
    dtype=torch.float32,
    compiled=False,
    threads=1,
    deterministic=True,
    device=torch.device("cpu"),
    peak_flops_per_s=None,
)


def test_a_batch_that_grows_is_told_and_counted() -> None:
    parts = BatchPart(batch_tokens=4, steps=3), BatchPart(batch_tokens=8, steps=1)
    settings = replace(SETTINGS, steps=6, sizes=BatchSizes(full=16, ramp=parts))
    assert settings.batch_sequences == 4
    assert [settings.sequences(step) for step in range(7)] == [1, 1, 1, 2, 4, 4, 4]
    said = "3 updates of 4, then 1 updates of 8, then 2 updates of 16 tokens read the train split 4.33 times"
    assert settings.notes() == [said]
    short = replace(settings, steps=4)
    assert short.notes()[1] == "the run ends before its batch is full (16 tokens): shorten batch_ramp"


def test_batches_that_were_left_out_have_their_own_sizes() -> None:
    settings = replace(SETTINGS, sizes=BatchSizes(full=16, ramp=(BatchPart(batch_tokens=4, steps=3),)))
    sizes, passed = [4, 4, 4, 16, 16, 16, 16], (1, 4)
    read = [size for number, size in enumerate(sizes) if number not in passed]
    assert [settings.tokens_at(step, passed) for step in range(5)] == read
    assert [settings.tokens(steps, passed) for steps in range(6)] == [sum(read[:steps]) for steps in range(6)]


def test_a_run_says_how_often_it_reads_its_data_and_that_its_warm_up_is_cut() -> None:
    assert SETTINGS.notes() == ["3 updates of 8 tokens read the train split 2 times"]
    for asked, warmup in ((3, 3), (4, 3)):
        settings = replace(SETTINGS, asked_warmup_steps=asked)
        assert settings.warmup_steps == warmup
        assert len(settings.notes()) == (1 if asked == warmup else 2)
    assert settings.notes()[1].startswith("the warm-up (4 updates) is longer than the run (3): it is cut to the run")
