"""A function that is compiled too often says which guard asked for it, runs on, and is counted."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._dynamo import config, reset

from trainwright.artifact.events import Events
from trainwright.runtime.timing.recompilation import LOGGER, recompilation_limited


@pytest.fixture
def told():
    reset()
    heard = []
    yield Events(None, run="x", listeners=(heard.append,)), heard
    reset()


def rotated(x, number):
    return x * number


@pytest.mark.parametrize(("limit", "graphs"), [(2, 2), (4, 4)])
def test_it_stops_at_the_limit_and_names_the_guard(told, limit, graphs, caplog) -> None:
    events, heard = told
    compiled, before = torch.compile(rotated, backend="eager", dynamic=False), config.recompile_limit
    with recompilation_limited(limit, events, 3):
        for number in range(4):
            assert torch.equal(compiled(torch.ones(3), number), torch.full((3,), float(number)))
    assert config.recompile_limit == before
    said = [event.text for event in heard if event.kind == "message"]
    assert len(said) == (limit < 4)
    for text in said:
        assert "rotated" in text and f"{limit} times" in text and "number ==" in text
        assert text.endswith("train.exec.recompile_limit allows more") and "\n" not in text
    (count,) = [event for event in heard if event.name == "train/compiled_graphs"]
    assert (count.value, count.unit, count.step) == (graphs, "graphs", 3)
    assert "hit config" not in caplog.text


def test_other_lines_of_torch_stay_and_nothing_is_left_behind(told, caplog) -> None:
    events, heard = told
    logger = logging.getLogger(LOGGER)
    before = list(logger.filters)
    with recompilation_limited(8, events, 0):
        assert logger.filter(logging.makeLogRecord({"msg": "something else", "args": ()}))
        assert logger.filter(logging.makeLogRecord({"msg": "torch._dynamo hit config.%s", "args": ("x",)}))
    assert logger.filters == before
    assert [event.kind for event in heard] == ["metric"]
