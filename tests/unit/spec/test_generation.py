from __future__ import annotations

import dataclasses

import pytest

from fixtures.parrot_engine import Parrot
from trainwright.spec.generation import GenerationRequest, Generator, Sampling


def test_defaults_are_greedy_and_without_an_end():
    request = GenerationRequest(prompt=[1], sampling=Sampling(max_tokens=1))
    assert (request.sampling.temperature, request.sampling.top_p, request.end_ids) == (0.0, 1.0, frozenset())


def test_requests_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampling(max_tokens=1).max_tokens = 2


def test_an_engine_is_recognised_by_what_it_can():
    assert isinstance(Parrot(1), Generator)
    assert not isinstance(object(), Generator)
