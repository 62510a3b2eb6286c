from __future__ import annotations

import pytest

from trainwright.model.generation.texts import Piece, TextGenerator
from trainwright.spec.generation import Failure, NewToken, Sampling

LETTERS = {n: bytes([n]) for n in range(256)}
END = 0


class Recited:
    """An engine that gives one prepared list of events per step and notes what is cancelled."""

    name, context_tokens, vocabulary, places, unfinished = "recited", 100, 256, 4, 0

    def __init__(self, *steps):
        self.steps, self.requests, self.cancelled = list(steps), [], []

    def add(self, request):
        self.requests.append(request)
        return len(self.requests) - 1

    def cancel(self, key):
        self.cancelled.append(key)

    def step(self):
        return self.steps.pop(0)


def token(character: str, *, finish=None, key=0) -> NewToken:
    return NewToken(key=key, token=ord(character), finish=finish)


@pytest.fixture
def start():
    def make(*steps, stop=()):
        engine = Recited(*steps)
        generator = TextGenerator(engine, LETTERS, end_ids=frozenset({END}))
        generator.add([1], Sampling(max_tokens=9, stop=stop))
        return engine, generator

    return make


def test_requests_carry_the_end_tokens(start):
    engine, _ = start()
    assert engine.requests[0].end_ids == {END}


def test_a_stop_text_cancels_the_rest(start):
    engine, generator = start([token("a")], [token("b")], [token("c")], stop=("bc",))
    assert generator.step() == [Piece(key=0, text="a", finish=None)]
    assert generator.step() == [Piece(key=0, text="", finish=None)]
    assert generator.step() == [Piece(key=0, text="", finish="stop")]
    assert (engine.cancelled, generator.unfinished) == ([0], 0)


def test_a_stop_text_in_the_last_token_wins_over_the_limit(start):
    engine, generator = start([token("b", finish="length")], stop=("b",))
    assert generator.step() == [Piece(key=0, text="", finish="stop")]
    assert engine.cancelled == []


def test_the_end_token_is_no_text_and_releases_what_waited(start):
    _, generator = start([token("b")], [NewToken(key=0, token=END, finish="stop")], stop=("bc",))
    assert generator.step()[0].text == ""
    assert generator.step() == [Piece(key=0, text="b", finish="stop")]


def test_half_a_character_at_the_limit_becomes_a_replacement(start):
    _, generator = start([NewToken(key=0, token=0xC3, finish="length")])
    assert generator.step() == [Piece(key=0, text="\N{REPLACEMENT CHARACTER}", finish="length")]


def test_a_failure_passes_and_forgets_the_request(start):
    engine, generator = start([Failure(key=0, reason="no number")])
    assert generator.step() == [Failure(key=0, reason="no number")]
    assert generator.unfinished == 0
    generator.cancel(0)
    assert engine.cancelled == []
