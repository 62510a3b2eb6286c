from __future__ import annotations

import numpy as np
import pytest
import torch

from trainwright.model.generation import sampling as sampling_module
from trainwright.model.generation.sampling import sample, uniform
from trainwright.spec.generation import Sampling

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0, 1.5])


def counts(sampling: Sampling, n: int) -> np.ndarray:
    return np.bincount([sample(LOGITS, sampling, position=i) for i in range(n)], minlength=len(LOGITS))


def chi_square(seen: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * seen.sum()
    return float(((seen - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.8])
def test_samples_are_distributed_as_the_softmax(temperature):
    probabilities = np.exp(LOGITS.double().numpy() / temperature)
    probabilities /= probabilities.sum()
    seen = counts(Sampling(max_tokens=1, temperature=temperature, seed=11), 6000)
    assert chi_square(seen, probabilities) < 24.3  # 99.9 % quantile of chi-square with 7 degrees of freedom


def test_top_p_keeps_the_smallest_set_that_reaches_it_and_its_proportions():
    probabilities = LOGITS.double().softmax(0).numpy()
    order = np.argsort(-probabilities)
    kept = order[: np.searchsorted(probabilities[order].cumsum(), 0.8) + 1]
    seen = counts(Sampling(max_tokens=1, temperature=1.0, top_p=0.8, seed=5), 4000)
    assert set(np.flatnonzero(seen)) == set(kept)
    inside = probabilities[kept] / probabilities[kept].sum()
    assert chi_square(seen[kept], inside) < 18.5  # 99.9 %, 4 degrees of freedom


@pytest.mark.parametrize("candidates", [1, 3, 1000])
def test_a_nucleus_wider_than_the_first_candidates_is_found_all_the_same(monkeypatch, candidates):
    sampling = Sampling(max_tokens=1, temperature=1.0, top_p=0.9, seed=2)
    expected = [sample(LOGITS, sampling, position=i) for i in range(200)]
    monkeypatch.setattr(sampling_module, "CANDIDATES", candidates)
    assert [sample(LOGITS, sampling, position=i) for i in range(200)] == expected


def test_a_tiny_top_p_and_temperature_zero_take_the_likeliest():
    for sampling in (Sampling(max_tokens=1, temperature=1.0, top_p=1e-9), Sampling(max_tokens=1)):
        assert {sample(LOGITS, sampling, position=i) for i in range(20)} == {0}


def test_huge_logits_and_small_temperatures_stay_finite():
    sampling = Sampling(max_tokens=1, temperature=1e-3)
    assert sample(LOGITS * 1e4, sampling, position=0) == 0


def test_uniform_is_a_function_of_its_counters_and_uniform():
    assert uniform(seed=1, choice=0, position=2) == uniform(seed=1, choice=0, position=2)
    different = {uniform(seed=s, choice=c, position=p) for s in (-1, 0, 1, 2**63) for c in range(3) for p in range(50)}
    assert len(different) == 4 * 3 * 50
    drawn = np.array([uniform(seed=9, choice=0, position=p) for p in range(10_000)])
    assert 0 <= drawn.min() <= drawn.max() < 1
    assert chi_square(np.histogram(drawn, bins=20, range=(0, 1))[0], np.full(20, 0.05)) < 43.8  # 99.9 %, 19 degrees
