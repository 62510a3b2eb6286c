"""The contract refuses each engine that breaks one promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.parrot_engine import Parrot
from trainwright.testing.contract_engine import EngineContract


class KeepsCancelled(Parrot):
    def cancel(self, key):
        """Forgets nothing that is under way."""


class OneTooMany(Parrot):
    def add(self, request):
        return super().add(replace(request, sampling=replace(request.sampling, max_tokens=6)))


class WithoutContext(Parrot):
    def add(self, request):
        key = super().add(request)
        self._requests[key] = replace(request, prompt=request.prompt[:1])
        return key


class SeedOfTheBatch(Parrot):
    def add(self, request):
        seed = request.sampling.seed + self.unfinished
        return super().add(replace(request, sampling=replace(request.sampling, seed=seed)))


class GreedyByPlace(Parrot):
    def _next(self, key, request):
        event = super()._next(key, request)
        return replace(event, token=(event.token + self.unfinished) % self.vocabulary)


class NoChoices(Parrot):
    def add(self, request):
        return super().add(replace(request, sampling=replace(request.sampling, choice=0)))


class DeafToTheEnd(Parrot):
    def add(self, request):
        return super().add(replace(request, end_ids=frozenset()))


class TakesAnything(Parrot):
    def add(self, request):
        prompt = [token for token in request.prompt if 0 <= token < self.vocabulary] or [0]
        return super().add(replace(request, prompt=prompt[: self.context_tokens - 1]))


class SpeaksTwice(Parrot):
    def step(self):
        return [event for event in super().step() for _ in range(2)]


class Contract(EngineContract):
    __test__ = False
    make_engine = Parrot


CONTRACT = Contract()


@pytest.mark.parametrize(
    ("engine", "test"),
    [
        (WithoutContext, "test_the_context_ends_an_answer"),
        (SeedOfTheBatch, "test_a_seed_gives_the_same_tokens_whatever_else_is_generated"),
        (GreedyByPlace, "test_greedy_tokens_are_those_of_one_by_one_generation"),
        (NoChoices, "test_choices_and_seeds_differ"),
        (DeafToTheEnd, "test_an_end_token_ends_an_answer_and_is_its_last"),
        (KeepsCancelled, "test_cancelling_frees_the_place_and_silences_the_request"),
        (TakesAnything, "test_a_refused_request_leaves_the_others_alone"),
        (SpeaksTwice, "test_more_requests_than_places_are_all_answered"),
    ],
)
def test_a_broken_promise_is_seen(engine, test):
    getattr(CONTRACT, test)(Parrot)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(CONTRACT, test)(engine)


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_the_limit_is_exact(max_tokens):
    CONTRACT.test_the_token_limit_is_exact(Parrot, max_tokens)
    with pytest.raises(AssertionError):
        CONTRACT.test_the_token_limit_is_exact(OneTooMany, max_tokens)


def test_a_contract_without_an_engine_cannot_be_tested():
    with pytest.raises(TypeError, match="make_engine"):
        type("Nothing", (EngineContract,), {})()
