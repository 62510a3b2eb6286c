from __future__ import annotations

import math

import pytest

from trainwright.stages.report import say


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("memory_bytes", 2**30, "1 GiB"),
        ("matmul_bf16_flops_per_s", 4.32e11, "432 GFLOP/s"),
        ("memory_bytes_per_s", 2.01e10, "20.1 GB/s"),
        ("clock_max_hz", 3.5e9, "3.5 GHz"),
        ("tokens_per_s", 18420.3, "18,420 tokens/s"),
        ("images_per_s", 410.2, "410.2 images/s"),
        ("probe_s", 14.0, "14 s"),
        ("cost_usd", 0.042, "$0.042"),
        ("mfu", 0.421, "42.1 %"),
        ("cpu_busy", 0.08, "8 %"),
        ("layers", 4, "4"),
        ("width", 4096, "4,096"),
        ("tied", True, "yes"),
        ("compiler", None, "unknown"),
        ("cpu_features", ("avx2", "fma"), "avx2, fma"),
        ("cpu_features", (), "none"),
        ("loss", math.nan, "not a number"),
        ("perplexity", math.inf, "unknown"),
    ],
)
def test_the_name_gives_the_unit(name, value, text):
    assert say.value(name, value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("disk_free_bytes", "disk free"),
        ("matmul_bf16_flops_per_s", "matmul bf16"),
        ("cpu_features", "CPU features"),
        ("tokens_per_s", "speed"),
        ("data_wait", "data wait"),
    ],
)
def test_titles_are_words(name, text):
    assert say.title(name) == text


def test_ratio():
    assert say.ratio(1.036) == "1.04×"
    assert say.ratio(None) == say.ratio(math.inf) == "unknown"
