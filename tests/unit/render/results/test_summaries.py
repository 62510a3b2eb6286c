from __future__ import annotations

import pytest

from trainwright.render.results.summaries import summary_line

MATMUL = {"matmul_fp32_flops_per_s": 3.337e11, "matmul_bf16_flops_per_s": 3.015e12}


@pytest.mark.parametrize(
    ("stage", "summary", "text"),
    [
        (
            "doctor",
            {
                "cpu": "X",
                "cores": 2,
                "memory_bytes": 2**34,
                "findings": 1,
                "matmul_fp32_flops_per_s": 3.337e11,
                "matmul_bf16_flops_per_s": 3.015e12,
            },
            "2 cores, 16 GiB, fp32 334 GFLOP/s, bf16 3.02 TFLOP/s, 1 finding",
        ),
        (
            "plan",
            {"fits": True, "memory_bytes": 583758394.3, "seconds": 212.0, "precision": "bf16", "micro_batch": 8},
            "fits in memory, 556.7 MiB, 3 min 32 s, bf16, micro batch 8",
        ),
        ("plan", {"fits": False}, "does not fit in memory"),
        (
            "train",
            {"train_loss": 2.5, "bits_per_byte": 1.25, "weights": "averaged", "tokens_per_s": 900.0},
            "loss 2.500, validation 1.250 bits per byte, of averaged weights, 900 tokens/s",
        ),
        (
            "data",
            {"documents": 1740, "bytes": 2**25, "tokens": {"train": 900, "test": 100}, "vocabulary": 4096},
            "1,740 documents, 32 MiB, 1,000 tokens, vocabulary 4,096",
        ),
        (
            "train",
            {"parameters": 3344064, "tokens": 3276800, "passes": 2.5, "train_loss": 2.61407, "bits_per_byte": None},
            "3.344M parameters, 3.277M tokens, 2.5 passes over the data, loss 2.614",
        ),
        (
            "train",
            {"parameters": 1000, "train_loss": 2.61407, "left_out": "39 of 40 updates", "tokens_per_s": 50},
            "1,000 parameters, loss 2.614, 39 of 40 updates left out, 50 tokens/s",
        ),
        ("train", {"train_loss": 2.5, "left_out_or_rolled_back": 1}, "loss 2.500, 1 update left out or rolled back"),
        (
            "audit",
            {"seconds_ratio": 1.0815, "memory_ratio": 0.93, "time_within_range": True},
            "training time +8 % against the plan, inside the predicted range, peak memory -7 %",
        ),
        (
            "audit",
            {"seconds_ratio": 1.5, "memory_ratio": 1.0, "time_within_range": False},
            "training time +50 % against the plan, outside the predicted range, peak memory ±0 %",
        ),
        (
            "serve",
            {"tokens_per_s": 189.7, "time_to_first_token_s": 0.0161, "prompt": "x"},
            "190 tokens/s, first token after 16.1 ms",
        ),
    ],
)
def test_each_stage_answers_its_question(stage, summary, text):
    assert summary_line(stage, summary) == text


def test_a_stage_of_a_plug_in_shows_its_short_values_by_name():
    summary = {"engine": "cpu", "text": "x" * 25, "lines": "a\nb", "nested": {"a": 1}, "peak_size": 3_000_000}
    assert summary_line("distil", summary) == "engine cpu, peak size 3M"
    assert summary_line("distil", {str(number): number for number in range(9)}).count(",") == 5


def test_metrics_that_no_phrase_is_of_are_shown_by_name() -> None:
    assert summary_line("evaluate", {"test_loss": 0.4, "test_edges": 0.79}) == "test loss 0.4, test edges 0.79"


def test_a_training_names_the_metrics_of_its_own_task():
    summary = {"train_loss": 0.5, "validation_loss": 0.4, "bits_per_byte": None, "validation_surprise": 1.25e-5}
    assert summary_line("train", summary) == "loss 0.500, validation loss 0.4000, validation surprise 1.25e-05"
    assert "perplexity" not in summary_line("train", {"bits_per_byte": 1.2, "validation_perplexity": 9.0})


def test_embeddings_are_told_by_what_is_found_first() -> None:
    summary = {"validation_loss": 0.5, "validation_recall_at_1": 0.645, "test_loss": 0.6, "test_recall_at_1": 0.6}
    assert summary_line("evaluate", summary) == "test recall at 1 60.0%, validation recall at 1 64.5%"
