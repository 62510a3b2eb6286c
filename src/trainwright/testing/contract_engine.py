"""The contract of a serving engine: what every ``Generator`` promises, as a test class to inherit.

::

    class TestMyEngine(EngineContract):
        def make_engine(self, places):
            return MyEngine(places=places)

The engine's model must be able to continue any prompt, and its answers should not end by themselves: tests pass end
tokens only where they are about them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.generation import Failure, GenerationRequest, Generator, Sampling

OpenEngine = Callable[[int], Generator]
Answer = tuple[list[int], str]
"""The tokens of an answer and why it ended."""


def drain(engine: Generator) -> dict[int, Answer]:
    """Steps until no request is unfinished; returns the answer of each key.

    Raises:
        AssertionError: two events for one key in a step, an event after the last, or a request that failed.
    """
    tokens: dict[int, list[int]] = {}
    finishes: dict[int, str] = {}
    while engine.unfinished:
        events = engine.step()
        assert len({event.key for event in events}) == len(events), "two events for one request in one step"
        for event in events:
            assert not isinstance(event, Failure), event
            assert event.key not in finishes, "an event after the last"
            tokens.setdefault(event.key, []).append(event.token)
            if event.finish is not None:
                finishes[event.key] = event.finish
    assert tokens.keys() == finishes.keys()
    return {key: (tokens[key], finishes[key]) for key in tokens}


class EngineContract(ABC):
    """What an engine promises. Inherit it and make one."""

    @abstractmethod
    def make_engine(self, places: int) -> Generator:
        """Returns a fresh engine with so many places."""

    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        """A function from ``places`` to a fresh engine."""
        return self.make_engine

    def prompts(self, engine: Generator, n: int) -> list[list[int]]:
        """Prompts of mixed lengths, the same at every call."""
        draw = random.Random(7)
        longest = min(40, engine.context_tokens // 2)
        return [[draw.randrange(engine.vocabulary) for _ in range(draw.randint(1, longest))] for _ in range(n)]

    def alone(self, open_engine: OpenEngine, request: GenerationRequest) -> Answer:
        """Returns the answer of an engine that has nothing else to do."""
        engine = open_engine(1)
        key = engine.add(request)
        return drain(engine)[key]

    def together(self, engine: Generator, requests: Sequence[GenerationRequest]) -> list[Answer]:
        """Returns the answers to requests that are in line at once."""
        keys = [engine.add(request) for request in requests]
        assert len(set(keys)) == len(keys)
        answers = drain(engine)
        return [answers[key] for key in keys]

    def test_greedy_tokens_are_those_of_one_by_one_generation(self, open_engine: OpenEngine) -> None:
        engine = open_engine(3)
        requests = [
            GenerationRequest(prompt=prompt, sampling=Sampling(max_tokens=4 + n))
            for n, prompt in enumerate(self.prompts(engine, 7))
        ]
        assert self.together(engine, requests) == [self.alone(open_engine, request) for request in requests]

    def test_a_seed_gives_the_same_tokens_whatever_else_is_generated(self, open_engine: OpenEngine) -> None:
        engine = open_engine(4)
        prompts = self.prompts(engine, 6)
        requests = [
            GenerationRequest(
                prompt=prompt, sampling=Sampling(max_tokens=12, temperature=1.0, top_p=0.95, seed=seed, choice=seed % 2)
            )
            for seed, prompt in enumerate(prompts)
        ]
        assert self.together(engine, requests) == [self.alone(open_engine, request) for request in requests]

    def test_choices_and_seeds_differ(self, open_engine: OpenEngine) -> None:
        engine = open_engine(8)
        prompt = self.prompts(engine, 1)[0]
        settings = [(seed, choice) for seed in (1, 2) for choice in (0, 1)]
        requests = [
            GenerationRequest(
                prompt=prompt, sampling=Sampling(max_tokens=24, temperature=1.5, seed=seed, choice=choice)
            )
            for seed, choice in settings
        ]
        answers = self.together(engine, requests)
        assert len({tuple(tokens) for tokens, _ in answers}) == len(settings)

    @pytest.mark.parametrize("max_tokens", [1, 5])
    def test_the_token_limit_is_exact(self, open_engine: OpenEngine, max_tokens: int) -> None:
        engine = open_engine(2)
        request = GenerationRequest(prompt=[1, 2], sampling=Sampling(max_tokens=max_tokens))
        tokens, finish = self.alone(open_engine, request)
        assert (len(tokens), finish) == (max_tokens, "length")
        assert all(0 <= token < engine.vocabulary for token in tokens)

    def test_the_context_ends_an_answer(self, open_engine: OpenEngine) -> None:
        engine = open_engine(2)
        prompt = [1] * (engine.context_tokens - 3)
        request = GenerationRequest(prompt=prompt, sampling=Sampling(max_tokens=50))
        ((tokens, finish),) = self.together(engine, [request])
        assert (len(tokens), finish) == (3, "length")

    def test_an_end_token_ends_an_answer_and_is_its_last(self, open_engine: OpenEngine) -> None:
        request = GenerationRequest(prompt=[3, 1, 2], sampling=Sampling(max_tokens=12))
        tokens, _ = self.alone(open_engine, request)
        end = tokens[4]
        ended = GenerationRequest(prompt=[3, 1, 2], sampling=request.sampling, end_ids=frozenset({end}))
        expected = (tokens[: tokens.index(end) + 1], "stop")
        assert self.alone(open_engine, ended) == expected

    def test_cancelling_frees_the_place_and_silences_the_request(self, open_engine: OpenEngine) -> None:
        engine = open_engine(1)
        long = GenerationRequest(prompt=[1, 2], sampling=Sampling(max_tokens=engine.context_tokens))
        short = GenerationRequest(prompt=[2, 1], sampling=Sampling(max_tokens=3))
        running, waiting, last = engine.add(long), engine.add(long), engine.add(short)
        while not any(event.key == running for event in engine.step()):
            assert engine.unfinished == 3
        engine.cancel(running)
        engine.cancel(waiting)
        engine.cancel(waiting)
        assert engine.unfinished == 1
        assert drain(engine) == {last: self.alone(open_engine, short)}
        engine.cancel(last)
        engine.cancel(last + 1000)
        assert engine.unfinished == 0

    def test_a_refused_request_leaves_the_others_alone(self, open_engine: OpenEngine) -> None:
        engine = open_engine(2)
        good = GenerationRequest(prompt=[1, 2, 3], sampling=Sampling(max_tokens=6))
        key = engine.add(good)
        engine.step()
        for prompt in ([], [engine.vocabulary], [-1], [1] * engine.context_tokens):
            with pytest.raises(RecipeError):
                engine.add(GenerationRequest(prompt=prompt, sampling=Sampling(max_tokens=1)))
        assert engine.unfinished == 1
        second = engine.add(good)
        tokens, finish = self.alone(open_engine, good)
        answers = drain(engine)
        assert answers[second] == (tokens, finish)
        assert tokens[-len(answers[key][0]) :] == answers[key][0]

    def test_more_requests_than_places_are_all_answered(self, open_engine: OpenEngine) -> None:
        engine = open_engine(2)
        assert engine.places == 2
        prompts = self.prompts(engine, 9)
        requests = [GenerationRequest(prompt=prompt, sampling=Sampling(max_tokens=3)) for prompt in prompts]
        assert [len(tokens) for tokens, _ in self.together(engine, requests)] == [3] * 9

    def test_a_step_with_nothing_to_do_gives_nothing(self, open_engine: OpenEngine) -> None:
        engine = open_engine(2)
        assert list(engine.step()) == []
        assert engine.unfinished == 0
        assert engine.name
